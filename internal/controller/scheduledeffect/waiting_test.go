package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A one-time effect whose firing waits", Label("EFF-07", "K8S-07"), func() {
	const due = 10 * time.Second
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, ptr.To(skeinv1.NewTimestamp(Start.Add(due)))
		})
		w.settle(ctx)
		w.Clock.Step(due)
		w.settle(ctx)
		w.Writes()
	})
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)
	}
	// attempt claims the firing, and records that it waits; or, for no reason, that it succeeded.
	attempt := func(ctx context.Context, why string) {
		GinkgoHelper()
		claimed, err := w.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{Namespace: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(claimed).To(HaveLen(1))
		f := claimed[0]
		end := store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: store.FiringSucceeded}
		if why != "" {
			end.Status, end.Waiting, end.RetryAfter = store.FiringPending, why, time.Second
		}
		Expect(w.Store.FinishFiring(ctx, end)).To(Succeed())
	}

	It("says for what, and that it is over", func(ctx SpecContext) {
		const full, missing = "no sandbox is available: the pool is full", `Effect "tick" does not exist`
		attempt(ctx, full)
		w.pass(ctx, 10*time.Second)
		Expect(w.s.Status).To(And(HaveField("Phase", "Fired"), HaveField("CompletionTime", BeNil())))
		Expect(ready()).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonWaiting), HaveField("Message", "a firing waits: "+full))))
		attempt(ctx, missing)
		w.pass(ctx, 10*time.Second)
		Expect(ready()).To(HaveValue(HaveField("Message", "a firing waits: "+missing)))
		attempt(ctx, "")
		w.settle(ctx)
		Expect(w.s.Status.Phase).To(Equal("Succeeded"))
		Expect(ready()).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", ""))))
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 3}), "one for each thing that it waited for, and its end")
	})

	It("costs no write when it waits for a short time", func(ctx SpecContext) {
		for range 3 {
			attempt(ctx, "no sandbox is available: the pool is full")
			w.pass(ctx, 2*time.Second)
		}
		attempt(ctx, "")
		w.settle(ctx)
		Expect(w.s.Status.Phase).To(Equal("Succeeded"))
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 1}), "its end")
	})
})
