package scheduledeffect_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// readCounter counts the reads of firings.
type readCounter struct {
	scheduledeffect.Store
	lists, ones int
}

func (c *readCounter) Firings(ctx context.Context, q store.FiringQuery) ([]store.Firing, error) {
	c.lists++
	return c.Store.Firings(ctx, q)
}

func (c *readCounter) Firing(ctx context.Context, k store.FiringKey) (*store.Firing, error) {
	c.ones++
	return c.Store.Firing(ctx, k)
}

var _ = Describe("A firing of an effect of one time", Label("EFF-04"), func() {
	It("is read once by each reconcile, without its arguments", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.thread(ctx)
		o := w.r.Options
		reads := &readCounter{Store: o.Store}
		o.Store = reads
		w.r = scheduledeffect.New(o)
		w.declare(ctx, forThread, once(time.Minute))
		Reconcile(ctx, w.r, w.s)
		Expect(reads.lists).To(BeZero(), "it is not due")
		w.Clock.Step(time.Minute)
		for n := range 3 {
			if n == 2 {
				Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
			}
			Reconcile(ctx, w.r, w.s)
			Expect(reads.lists).To(Equal(n + 1))
		}
		Expect(reads.ones).To(BeZero())
		Expect(Get(ctx, w.Env, w.s).Status.Phase).To(Equal("Succeeded"))
	})
})

var _ = Describe("A schedule with many firings under way", Label("EFF-03"), func() {
	DescribeTable("is reconciled for their ends", func(ctx SpecContext, threads int, atOnce bool, edit ...func(*skeinv1.ScheduledEffect)) {
		w := newWorld(ctx)
		for i := range threads {
			t := &skeinv1.Thread{ObjectMeta: Meta(fmt.Sprint("t", i))}
			w.Create(ctx, t)
			t.Status.ThreadID = string(t.UID)
			Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
		}
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer q.ShutDown()
		Expect(w.r.Notifications().Start(ctx, q)).To(Succeed())
		w.declare(ctx, append(edit, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ThreadSelector, s.Spec.MaxThreads = &metav1.LabelSelector{}, 1000
		})...)
		w.pass(ctx, time.Minute)
		w.pass(ctx, 11*time.Second)
		Expect(w.s.Status.Active).To(BeNumerically(">=", threads))
		for q.Len() > 0 { // for what was recorded
			req, _ := q.Get()
			q.Done(req)
		}
		next := w.settle(ctx)
		claimed, err := w.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{Namespace: 1})
		Expect(err).NotTo(HaveOccurred())
		f := claimed[0]
		Expect(w.Store.FinishFiring(ctx, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: store.FiringFailed})).To(Succeed())
		if atOnce {
			Expect(q.Len()).To(Equal(1))
			return
		}
		Expect(q.Len()).To(BeZero())
		Expect(next).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)))
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status).To(And(HaveField("LastOutcome", "Failed"), HaveField("Active", int32(threads-1))))
	},
		Entry("a second later, for all together", 101, false),
		Entry("at once, when they are fewer", 100, true),
		Entry("at once, when others wait for their turn", 101, true, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ConcurrencyPolicy = []string{"@every 30s"}, skeinv1.ConcurrencyQueue
		}),
	)
})
