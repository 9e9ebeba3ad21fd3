package scheduledeffect_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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
})
