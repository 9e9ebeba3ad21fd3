package scheduledeffect_test

import (
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/store"
)

// noted is a workqueue that notes after how long it is asked to wake up.
type noted struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	after []time.Duration
}

func (q *noted) AddWithOpts(o priorityqueue.AddOpts, items ...ctrl.Request) {
	q.after = append(q.after, o.After)
	q.PriorityQueue.AddWithOpts(o, items...)
}

// The workqueue reconciles an object whose reconcile failed after up to 30 seconds.
var _ = Describe("A reconcile that fails", Label("EFF-04"), func() {
	var w *world
	var q *noted
	failed := errors.New("not now")
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		q = &noted{PriorityQueue: priorityqueue.New[ctrl.Request]("test")}
		DeferCleanup(q.ShutDown)
		Expect(w.r.ClockSource().Start(ctx, q)).To(Succeed())
	})
	reconcile := func(ctx SpecContext) error {
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		return err
	}

	It("puts off no other due time of a schedule, and no other Thread", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.ConcurrencyPolicy = "", skeinv1.ConcurrencyReplace
			s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		w.pass(ctx, 70*time.Second)
		w.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "delete" {
				return failed
			}
			return nil
		})
		w.Clock.Step(50 * time.Second)
		Expect(reconcile(ctx)).To(MatchError(failed), "the Thread of the first due time is replaced")
		Expect(q.after).To(HaveExactElements(time.Minute))
		w.Clock.Step(time.Minute)
		Expect(reconcile(ctx)).To(MatchError(failed))
		Expect(q.after).To(HaveExactElements(time.Minute, time.Minute))
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule canceled", "2m0s schedule canceled", "3m0s schedule running"}))
		var threads skeinv1.ThreadList
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(HaveLen(3))
		w.Fail(nil)
		w.settle(ctx)
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(HaveLen(1))
	})

	It("puts off no effect of one time", func(ctx SpecContext) {
		w.thread(ctx)
		at := skeinv1.NewTimestamp(Start.Add(20 * time.Second))
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, &at
		})
		w.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.ScheduledEffect); ok && verb == "patch" && metav1.GetControllerOf(o) != nil {
				return failed
			}
			return nil
		})
		Expect(reconcile(ctx)).To(MatchError(failed), "the Thread cannot be made the owner")
		Expect(q.after).To(HaveExactElements(20 * time.Second))
	})
})

var _ = Describe("An effect of one time with policies", Label("EFF-04", "EFF-05"), func() {
	DescribeTable("shows how its firing ended", func(ctx SpecContext, status store.FiringStatus, reason string) {
		w := newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			at := skeinv1.NewTimestamp(Start)
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At, s.Spec.Timeout = nil, &skeinv1.LocalRef{Name: "t"}, &at, &metav1.Duration{Duration: time.Minute}
		})
		w.settle(ctx)
		if status == store.FiringCanceled {
			Expect(w.Store.CancelFirings(ctx, "no", w.firings(ctx)[0].Key())).To(Equal(1))
		} else {
			Finish(ctx, w.Env, w.s, status, "no tea")
		}
		w.settle(ctx)
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", reason))))
	},
		Entry("that succeeded", store.FiringSucceeded, skeinv1.ReasonSucceeded),
		Entry("that failed", store.FiringFailed, skeinv1.ReasonFailed),
		Entry("that was canceled", store.FiringCanceled, skeinv1.ReasonCanceled),
	)
})
