package scheduledeffect_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("An effect of one time that is deleted", Label("EFF-06"), func() {
	DescribeTable("does not run any more, and keeps for a while that it has fired", func(ctx SpecContext, again bool) {
		w := newWorld(ctx)
		w.thread(ctx)
		once := func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, ptr.To(skeinv1.NewTimestamp(Start.Add(time.Minute)))
		}
		w.declare(ctx, once)
		w.pass(ctx, 61*time.Second)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Status", store.FiringPending)), "it waits for a sandbox, say")

		Expect(w.Client.Delete(ctx, w.s)).To(Succeed())
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer q.ShutDown()
		w.r.ByDueTime().Delete(ctx, event.DeleteEvent{Object: w.s}, q)
		deleted := w.s
		if again {
			w.declare(ctx, once, func(s *skeinv1.ScheduledEffect) { s.Spec.At = ptr.To(skeinv1.NewTimestamp(Start.Add(time.Hour))) })
		}
		Reconcile(ctx, w.r, deleted)
		w.s = deleted
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "the ScheduledEffect was deleted"))))
	},
		Entry("for good", false),
		Entry("and created again with the same name", true),
	)
})
