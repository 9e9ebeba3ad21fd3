package scheduledeffect_test

import (
	"context"
	"strings"
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

// costs is a schedule of Threads that may cost so much a day.
func costs(most string) func(*skeinv1.ScheduledEffect) {
	return func(s *skeinv1.ScheduledEffect) {
		fromTemplate(s)
		s.Spec.DailyLimit = &skeinv1.DailyLimit{Cost: ptr.To(most)}
	}
}

// spend ends the firings that are under way. Each has cost so much.
func (w *world) spend(ctx context.Context, cost float64) {
	GinkgoHelper()
	for _, f := range w.firings(ctx) {
		if !f.Status.Ended() {
			Expect(w.Store.EndRunning(ctx, store.FiringEnd{Key: f.Key(), Status: store.FiringSucceeded, Cost: cost})).To(Succeed())
		}
	}
	w.settle(ctx)
}

// runs fires by hand so often.
func (w *world) runs(ctx context.Context, times int) {
	GinkgoHelper()
	var at []string
	for i := range times {
		at = append(at, w.Clock.Now().Add(time.Duration(i+1)*time.Microsecond).Format(time.RFC3339Nano))
	}
	w.Clock.Step(time.Duration(times+1) * time.Microsecond)
	w.ask(ctx, skeinv1.AnnotationRunAt, strings.Join(at, ","))
	w.settle(ctx)
}

// scheduledTimes returns the due times that have fired, without the firings by hand.
func (w *world) scheduledTimes(ctx context.Context) (out []string) {
	GinkgoHelper()
	for _, f := range w.firings(ctx) {
		if f.Origin != store.OriginManual {
			out = append(out, time.UnixMicro(f.Due).Sub(Start).String())
		}
	}
	return out
}

// ready returns the condition Ready.
func (w *world) ready() *metav1.Condition {
	return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)
}

var _ = Describe("The cost of a day", Label("EFF-08"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("is that of all its firings, however many were asked for by hand", func(ctx SpecContext) {
		w.declare(ctx, costs("1.00"), func(s *skeinv1.ScheduledEffect) { s.Spec.SuccessfulHistoryLimit = ptr.To(int32(1)) })
		w.pass(ctx, time.Minute)
		w.spend(ctx, 0.6)
		w.runs(ctx, 30)
		w.spend(ctx, 0)
		w.pass(ctx, time.Minute)
		w.spend(ctx, 0.3)
		w.runs(ctx, 30)
		w.spend(ctx, 0)
		w.pass(ctx, time.Minute)
		w.spend(ctx, 0)
		Expect(w.scheduledTimes(ctx)).To(Equal([]string{"1m0s", "2m0s", "3m0s"}), "0.90 is below the limit")
		w.runs(ctx, 1)
		w.spend(ctx, 0.1)
		w.runs(ctx, 30)
		w.spend(ctx, 0)
		w.pass(ctx, time.Minute)
		Expect(w.scheduledTimes(ctx)).To(Equal([]string{"1m0s", "2m0s", "3m0s"}), "a firing by hand cost the rest")
		Expect(w.skipped(ctx)).To(ConsistOf(And(HaveField("Reason", "LimitReached"), HaveField("Detail", "the cost of 2026-03-01 has reached the limit of 1.00"))))
		var threads skeinv1.ThreadList
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(HaveLen(1), "the history limits hold for Threads")
	})

	It("reaches a limit that it equals", func(ctx SpecContext) {
		w.declare(ctx, costs("0.8"))
		for _, cost := range []float64{0.1, 0.7, 0, 0} {
			w.pass(ctx, time.Minute)
			w.spend(ctx, cost)
		}
		Expect(w.scheduledTimes(ctx)).To(HaveLen(2))
	})

	// In Havana 8 March 2026 began at 01:00.
	It("counts from when the day begins in its time zone, and for the day of the due time", func(ctx SpecContext) {
		midnight := time.Date(2026, 3, 8, 5, 0, 0, 0, time.UTC)
		w.Clock.SetTime(midnight.Add(-90 * time.Second))
		w.declare(ctx, costs("1.5"), func(s *skeinv1.ScheduledEffect) {
			s.Spec.TimeZone, s.Spec.CatchUp = "America/Havana", &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll}
		})
		w.pass(ctx, 30*time.Second)
		w.spend(ctx, 1)
		w.pass(ctx, time.Minute)
		w.spend(ctx, 1)
		w.Clock.Step(3*time.Minute + 30*time.Second)
		w.settle(ctx)
		w.spend(ctx, 1)
		w.pass(ctx, time.Minute)
		Expect(w.firings(ctx)).To(HaveLen(5), "1.00 on each day, then three at once")
		Expect(w.skipped(ctx)).To(ConsistOf(HaveField("Detail", "the cost of 2026-03-08 has reached the limit of 1.5")))
		Expect(w.s.Status.NextTime).To(HaveValue(HaveField("Time", BeTemporally("==", time.Date(2026, 3, 9, 4, 0, 0, 0, time.UTC)))))
	})
})

var _ = Describe("A schedule whose limit of the day is reached", Label("EFF-07", "EFF-08"), func() {
	var w *world
	dayEnds := Start.Add(6*time.Hour + 30*time.Minute)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.Clock.SetTime(dayEnds.Add(-10 * time.Minute))
		w.declare(ctx, mostADay, func(s *skeinv1.ScheduledEffect) { s.Spec.TimeZone = "Asia/Kolkata" })
		w.pass(ctx, time.Minute+2*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Active"))
		w.pass(ctx, time.Minute)
	})
	limited := func() {
		GinkgoHelper()
		Expect(w.s.Status).To(And(HaveField("Phase", "LimitReached"), HaveField("NextTime", HaveValue(HaveField("Time", BeTemporally("==", dayEnds))))))
		Expect(w.ready()).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "LimitReached"),
			HaveField("Message", "2 firings on 2026-03-01, which is the limit: due times do not fire until 2026-03-02T00:00:00+05:30, unless you raise spec.dailyLimit"))))
	}
	active := func() {
		GinkgoHelper()
		Expect(w.s.Status.Phase).To(Equal("Active"))
		Expect(w.ready()).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Ready"), HaveField("Message", ""))))
	}

	It("says until when, also before it has skipped anything, and fires again when the day is over", func(ctx SpecContext) {
		Expect(w.skipped(ctx)).To(BeEmpty())
		limited()
		w.pass(ctx, 5*time.Minute)
		limited()
		w.pass(ctx, 3*time.Minute)
		Expect(w.firings(ctx)).To(HaveLen(3))
		active()
	})

	It("fires again when the limit is raised", func(ctx SpecContext) {
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.DailyLimit.Firings = ptr.To(int64(3)) })
		w.settle(ctx)
		active()
		w.pass(ctx, 2*time.Minute)
		Expect(w.firings(ctx)).To(HaveLen(3))
		Expect(w.s.Status.Phase).To(Equal("LimitReached"))
	})

	It("fires by hand, which counts as no firing of the day", func(ctx SpecContext) {
		w.runs(ctx, 2)
		Expect(w.fired(ctx)).To(ContainElements(HaveSuffix("manual pending"), HaveSuffix("manual pending")))
		limited()
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.DailyLimit.Firings = ptr.To(int64(3)) })
		w.pass(ctx, 2*time.Minute)
		Expect(w.scheduledTimes(ctx)).To(HaveLen(3))
	})

	It("shows that it is suspended if it is that, too", func(ctx SpecContext) {
		w.edit(ctx, suspend)
		w.settle(ctx)
		Expect(w.s.Status.Phase).To(Equal("Suspended"))
		w.edit(ctx, resume)
		w.settle(ctx)
		limited()
	})
})
