package scheduledeffect_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A firing that waits in turn", Label("EFF-03"), func() {
	template := func(s *skeinv1.ScheduledEffectSpec) {
		s.Effect = ""
		s.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
	}
	effect := func(s *skeinv1.ScheduledEffectSpec) { s.Effect, s.ThreadTemplate = "tick", nil }

	DescribeTable("does what it was recorded for, although an edit has changed what is fired", func(ctx SpecContext, was, now func(*skeinv1.ScheduledEffectSpec), status store.FiringStatus) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ConcurrencyPolicy = skeinv1.ConcurrencyQueue
			was(&s.Spec)
		})
		w.pass(ctx, 2*time.Minute)
		first := w.firings(ctx)
		Expect(first).To(HaveLen(2))
		Expect(first[1].Status).To(Equal(store.FiringQueued))
		now(&w.s.Spec)
		w.s.Generation++
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		if status == store.FiringRunning {
			Expect(w.Store.EndRunning(ctx, store.FiringEnd{Key: first[0].Key(), Status: store.FiringSucceeded})).To(Succeed())
		} else {
			Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		}
		w.settle(ctx)
		Expect(w.firings(ctx)[1].Status).To(Equal(status))
	},
		Entry("from a template to an effect", template, effect, store.FiringRunning),
		Entry("from an effect to a template", effect, template, store.FiringPending),
	)

	It("ends the Threads of a template that an edit has taken away", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ConcurrencyPolicy, s.Spec.SuccessfulHistoryLimit = skeinv1.ConcurrencyReplace, ptr.To(int32(1))
			template(&s.Spec)
		})
		threads := func() []skeinv1.Thread {
			GinkgoHelper()
			var list skeinv1.ThreadList
			Expect(w.Client.List(ctx, &list)).To(Succeed())
			return list.Items
		}
		w.pass(ctx, time.Minute)
		w.endThreads(ctx)
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(HaveExactElements(HaveSuffix("succeeded"), HaveSuffix("running")))
		ended := threads()
		Expect(ended).To(HaveLen(2))
		effect(&w.s.Spec)
		w.s.Generation++
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(HaveExactElements(HaveSuffix("succeeded"), HaveSuffix("canceled"), HaveSuffix("pending")))
		Expect(threads()).To(ConsistOf(HaveField("Status.LastRun", Not(BeNil()))), "what was replaced would go on, and be paid for")
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(HaveLen(3), "the first firing is beyond the history")
		Expect(threads()).To(BeEmpty())
	})
})
