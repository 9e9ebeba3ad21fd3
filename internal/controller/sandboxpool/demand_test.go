package sandboxpool_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/sandboxpool"
)

var _ = Describe("The buffer of warm sandboxes", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm, s.MaxWarm, s.Max = 2, ptr.To[int32](6), 100 })
		w.reconcile(ctx)
		w.allUp(ctx)
		w.reconcile(ctx)
	})
	// take claims n warm sandboxes and lets the pool observe it.
	take := func(ctx context.Context, n int) {
		GinkgoHelper()
		for range n {
			w.claim(ctx, w.warm(ctx)[0])
		}
		w.reconcile(ctx)
		w.allUp(ctx)
	}
	desired := func(ctx context.Context) int32 {
		GinkgoHelper()
		w.reconcile(ctx)
		w.Clock.Step(30 * time.Second) // changes of counts are written together
		w.reconcile(ctx)
		return w.get(ctx).Status.DesiredWarm
	}

	It("follows the claims of half a minute, between warm and maxWarm", Label("COD-09"), func(ctx SpecContext) {
		take(ctx, 1)
		Expect(w.warm(ctx)).To(HaveLen(2), "one claim needs no more")
		w.Clock.Step(10 * time.Second)
		take(ctx, 2)
		Expect(w.warm(ctx)).To(HaveLen(3))
		w.Clock.Step(10 * time.Second)
		take(ctx, 2)
		Expect(w.warm(ctx)).To(HaveLen(5))
		take(ctx, 5)
		Expect(w.warm(ctx)).To(HaveLen(6), "not above maxWarm")
		Expect(desired(ctx)).To(BeEquivalentTo(6))
		Expect(w.ready(ctx)).To(HaveField("Reason", skeinv1.ReasonWarm))
	})

	It("does not grow by claims that are far apart", func(ctx SpecContext) {
		for range 20 {
			w.Clock.Step(20 * time.Second)
			take(ctx, 1)
			Expect(w.warm(ctx)).To(HaveLen(2))
		}
	})

	It("shrinks when a busy time is five minutes ago", Label("COD-09"), func(ctx SpecContext) {
		take(ctx, 2)
		w.Clock.Step(10 * time.Second)
		take(ctx, 2)
		Expect(w.warm(ctx)).To(HaveLen(4))
		result := w.reconcile(ctx)
		Expect(result.RequeueAfter).To(BeNumerically("<=", 5*time.Minute))
		w.Clock.Step(5*time.Minute - 11*time.Second)
		w.reconcile(ctx)
		Expect(w.warm(ctx)).To(HaveLen(4))
		result = w.reconcile(ctx)
		Expect(result.RequeueAfter).To(Equal(time.Second), "it looks again by itself")
		w.Clock.Step(time.Second)
		w.reconcile(ctx)
		Expect(w.warm(ctx)).To(HaveLen(2))
		Expect(desired(ctx)).To(BeEquivalentTo(2))
	})

	It("does not raise the warm pods of a pool without maxWarm", func(ctx SpecContext) {
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.MaxWarm = nil })
		for range 3 {
			take(ctx, 2)
		}
		Expect(w.warm(ctx)).To(HaveLen(2))
	})

	It("can be nothing at rest, and then counts what had to start cold", func(ctx SpecContext) {
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm = 0 })
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(BeEmpty())
		Expect(w.ready(ctx)).To(HaveField("Status", metav1.ConditionTrue))
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm = 1 })
		w.reconcile(ctx)
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm = 0 })
		w.claim(ctx, w.warm(ctx)[0]) // like a pod that belongs to a thread from the start
		w.reconcile(ctx)
		Expect(w.warm(ctx)).To(HaveLen(1))
	})

	It("begins again under a new leader, which does not count earlier claims", func(ctx SpecContext) {
		take(ctx, 2)
		take(ctx, 2)
		Expect(w.warm(ctx)).To(HaveLen(4))
		w.r = sandboxpool.New(w.options())
		w.reconcile(ctx)
		Expect(w.warm(ctx)).To(HaveLen(2))
	})

	It("stays within the pool's bound", func(ctx SpecContext) {
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Max = 7 })
		take(ctx, 2)
		take(ctx, 2)
		Expect(w.pods(ctx)).To(HaveLen(7))
		take(ctx, 3)
		Expect(w.pods(ctx)).To(HaveLen(7))
	})
})
