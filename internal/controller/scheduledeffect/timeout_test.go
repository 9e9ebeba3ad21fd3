package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The timeout of firings of a template", Label("EFF-03", "EFF-08"), func() {
	const late = "it did not end within 1m30s, which spec.timeout allows"
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })
	limited := func(policy skeinv1.ConcurrencyPolicy) func(s *skeinv1.ScheduledEffect) {
		return func(s *skeinv1.ScheduledEffect) {
			fromTemplate(s)
			s.Spec.Timeout, s.Spec.ConcurrencyPolicy = &metav1.Duration{Duration: 90 * time.Second}, policy
		}
	}
	threads := func(ctx context.Context) (all []skeinv1.Thread) {
		GinkgoHelper()
		var list skeinv1.ThreadList
		Expect(w.Client.List(ctx, &list)).To(Succeed())
		return list.Items
	}
	terminated := func() map[string]string { return w.Engine.Terminated }

	DescribeTable("ends one that does not end by itself, and terminates its Thread", func(ctx SpecContext, policy skeinv1.ConcurrencyPolicy, want ...string) {
		w.declare(ctx, limited(policy))
		w.pass(ctx, time.Minute)
		w.runsFor(ctx, 0.5)
		first := threads(ctx)[0]
		w.pass(ctx, 89*time.Second)
		Expect(terminated()).To(BeEmpty())
		w.pass(ctx, time.Second)
		Expect(terminated()).To(Equal(map[string]string{first.ThreadID(): skeinv1.ReasonFiringTimeout}))
		Expect(w.firings(ctx)[0]).To(And(HaveField("Status", store.FiringFailed), HaveField("Error", late), HaveField("Cost", 0.5)))
		Expect(threads(ctx)).To(ContainElement(HaveField("Name", first.Name)), "its conversation says how far it came")
		w.pass(ctx, 45*time.Second)
		Expect(w.fired(ctx)).To(Equal(want))
	},
		Entry("the next due time fires", skeinv1.ConcurrencyForbid, "1m0s schedule failed", "3m0s schedule running"),
		Entry("what waited begins", skeinv1.ConcurrencyQueue, "1m0s schedule failed", "2m0s schedule running", "3m0s schedule queued"),
		Entry("others go on", skeinv1.ConcurrencyAllow, "1m0s schedule failed", "2m0s schedule running", "3m0s schedule running"),
	)

	It("counts as a failure", func(ctx SpecContext) {
		w.declare(ctx, limited(skeinv1.ConcurrencyForbid), func(s *skeinv1.ScheduledEffect) { s.Spec.PauseAfterFailures = ptr.To(int32(1)) })
		w.pass(ctx, time.Minute)
		w.runsFor(ctx, 0)
		w.pass(ctx, 2*time.Minute)
		Expect(w.s.Status.Phase).To(Equal("Paused"))
	})

	// ended tells of the end of the Thread's run, and why the Thread was terminated.
	ended := func(ctx context.Context, reason string) {
		GinkgoHelper()
		t := w.endRun(ctx, &skeinv1.RunStatus{ID: "r", Outcome: skeinv1.RunTerminated, Reason: skeinv1.ReasonTerminated}, w.Clock.Now().UnixMicro())
		meta.SetStatusCondition(&t.Status.Conditions, metav1.Condition{Type: skeinv1.ConditionTerminated, Status: metav1.ConditionTrue, Reason: reason})
		Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
	}

	It("is said after a crash between the two, too", func(ctx SpecContext) {
		ends := &noEnds{Store: w.Store, away: true}
		o := w.r.Options
		o.Store = ends
		w.r = scheduledeffect.New(o)
		w.declare(ctx, limited(skeinv1.ConcurrencyAllow), once(0))
		w.settle(ctx)
		w.runsFor(ctx, 0)
		w.Clock.Step(2 * time.Minute)
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).To(MatchError(ContainSubstring("not now")))
		Expect(terminated()).To(HaveLen(1))
		ended(ctx, skeinv1.ReasonFiringTimeout)
		ends.away = false
		w.r = scheduledeffect.New(o)
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringFailed), HaveField("Error", late))))
	})

	It("is not said of a Thread that a person terminated, however late that is seen", func(ctx SpecContext) {
		w.declare(ctx, limited(skeinv1.ConcurrencyAllow), once(0))
		w.settle(ctx)
		w.runsFor(ctx, 0)
		ended(ctx, skeinv1.ReasonTerminatedByRequest)
		w.Clock.Step(2 * time.Minute)
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Status", store.FiringCanceled)))
		Expect(terminated()).To(BeEmpty())
	})

	It("ends one whose Thread was never stored, and deletes that Thread", func(ctx SpecContext) {
		w.declare(ctx, limited(skeinv1.ConcurrencyForbid), once(0))
		w.settle(ctx)
		Expect(threads(ctx)).To(HaveLen(1))
		w.pass(ctx, 91*time.Second)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringFailed), HaveField("Error", late))))
		Expect(threads(ctx)).To(BeEmpty())
	})

	It("does not count before the Thread exists, nor after its run has ended", func(ctx SpecContext) {
		w.declare(ctx, limited(skeinv1.ConcurrencyForbid), once(0), func(s *skeinv1.ScheduledEffect) { s.Spec.ThreadTemplate.Spec.AgentRef.Name = "late" })
		w.pass(ctx, 5*time.Minute)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Status", store.FiringRunning)))
		w.ReadyAgent(ctx, "late")
		w.pass(ctx, 80*time.Second)
		w.endThreads(ctx)
		w.Clock.Step(time.Hour) // no manager ran
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Status", store.FiringSucceeded)))
	})
})
