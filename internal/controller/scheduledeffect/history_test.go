package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Threads of a template that an edit has taken away", Label("EFF-03"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })
	threads := func(ctx context.Context) int {
		GinkgoHelper()
		var list skeinv1.ThreadList
		Expect(w.Client.List(ctx, &list)).To(Succeed())
		return len(list.Items)
	}
	toEffect := func(s *skeinv1.ScheduledEffectSpec) { s.Effect, s.ThreadTemplate = "tick", nil }

	It("are deleted when the history does not keep their firings, however many came later", func(ctx SpecContext) {
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) { s.Spec.SuccessfulHistoryLimit = ptr.To(int32(30)) })
		w.pass(ctx, 3*time.Minute)
		w.endThreads(ctx)
		w.settle(ctx)
		w.edit(ctx, toEffect)
		later := func(n int) {
			GinkgoHelper()
			for range n {
				w.pass(ctx, time.Minute)
				Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
			}
		}
		later(28)
		Expect(threads(ctx)).To(Equal(3), "the history still has them")
		later(1)
		Expect(threads(ctx)).To(Equal(2))
		later(2)
		Expect(threads(ctx)).To(BeZero())
	})

	It("are deleted in slices when a firing has replaced them, and by the next leader too", func(ctx SpecContext) {
		w.declare(ctx, fromTemplate, everySecond, func(s *skeinv1.ScheduledEffect) {
			s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 250}
		})
		w.Clock.Step(250 * time.Second)
		w.settle(ctx)
		Expect(threads(ctx)).To(Equal(250))
		other := &skeinv1.Thread{ObjectMeta: Meta("other")}
		other.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.s, skeinv1.GroupVersion.WithKind("ScheduledEffect"))}
		w.Create(ctx, other)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) {
			toEffect(s)
			s.ConcurrencyPolicy, s.Schedules = skeinv1.ConcurrencyReplace, []string{"@every 1m"}
		})
		w.settle(ctx)
		w.Clock.Step(time.Minute)
		for _, left := range []int{150, 50, 0, 0} {
			w.r = scheduledeffect.New(w.r.Options)
			Reconcile(ctx, w.r, w.s)
			Expect(threads(ctx)).To(Equal(left + 1))
		}
		Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed(), "no firing made it")
	})
})

var _ = Describe("Firings of a template that are caught up together", Label("EFF-05"), func() {
	It("create no Threads of those that a later one replaces at once", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) {
			s.Spec.CatchUp, s.Spec.ConcurrencyPolicy = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll}, skeinv1.ConcurrencyReplace
		})
		w.Clock.Step(3*time.Minute + 5*time.Second)
		w.settle(ctx)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s catch-up canceled", "2m0s catch-up canceled", "3m0s schedule running"}))
		Expect(w.Writes()).To(HaveKeyWithValue("create Thread", 1))
	})
})

var _ = Describe("The history of a schedule", Label("EFF-07"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	DescribeTable("is within its limits when the last firings have ended", func(ctx SpecContext, restart bool) {
		w.declare(ctx, everySecond, func(s *skeinv1.ScheduledEffect) { s.Spec.MaxFirings = ptr.To(int64(30)) })
		w.pass(ctx, time.Minute)
		Expect(w.firings(ctx)).To(HaveLen(30))
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		if restart {
			w.r = scheduledeffect.New(w.r.Options)
		}
		w.settle(ctx)
		Expect(w.firings(ctx)).To(HaveLen(10))
	},
		Entry("while a manager runs", false),
		Entry("while none ran", true),
	)

	It("is within its limits long before the next due time", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.SuccessfulHistoryLimit = []string{"@every 1h"}, ptr.To(int32(1))
		})
		for range 2 {
			w.pass(ctx, time.Hour)
			Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
			w.pass(ctx, 2*time.Second)
		}
		Expect(w.fired(ctx)).To(Equal([]string{"2h0m0s schedule succeeded"}))
	})

	DescribeTable("does not cut what the status still has to show", func(ctx SpecContext, end store.FiringStatus, outcome string) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.SuccessfulHistoryLimit, s.Spec.FailedHistoryLimit = []string{"@every 1h"}, ptr.To(int32(0)), ptr.To(int32(0))
		})
		w.pass(ctx, time.Hour)
		Finish(ctx, w.Env, w.s, end, "")
		for range 3 { // the limit of status writes
			w.pass(ctx, 10*time.Second)
		}
		Expect(w.s.Status.LastOutcome).To(BeEquivalentTo(outcome))
		Expect(w.s.Status.LastTime).NotTo(BeNil())
		w.pass(ctx, time.Hour)
		Expect(w.fired(ctx)).To(Equal([]string{"2h0m0s schedule pending"}))
	},
		Entry("of a firing that succeeded", store.FiringSucceeded, "Succeeded"),
		Entry("of a firing that failed", store.FiringFailed, "Failed"),
	)

	It("is cut by the ends of firings, as the store and the Threads of a template are", func(ctx SpecContext) {
		w.declare(ctx, everySecond, func(s *skeinv1.ScheduledEffect) {
			s.Spec.MaxFirings, s.Spec.SuccessfulHistoryLimit = ptr.To(int64(2)), ptr.To(int32(1))
		})
		w.pass(ctx, 5*time.Second)
		all := w.firings(ctx)
		claimed, err := w.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{Namespace: 2})
		Expect(err).NotTo(HaveOccurred())
		Expect(claimed).To(HaveLen(2))
		for _, due := range []int64{all[1].Due, all[0].Due} { // the newest due time ends first
			for _, f := range claimed {
				if f.Due == due {
					Expect(w.Store.FinishFiring(ctx, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: store.FiringSucceeded, Counts: true})).To(Succeed())
				}
			}
			w.Clock.Step(time.Second)
		}
		w.settle(ctx)
		Expect(w.fired(ctx)).To(Equal([]string{"1s schedule succeeded"}))
	})
})
