package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// recordCounter counts the transactions that record what is due.
type recordCounter struct {
	scheduledeffect.Store
	n int
}

func (c *recordCounter) RecordDue(ctx context.Context, d store.DueRecord) error {
	c.n++
	return c.Store.RecordDue(ctx, d)
}

// edit changes the spec, as a person does.
func (w *world) edit(ctx context.Context, change func(*skeinv1.ScheduledEffectSpec)) {
	GinkgoHelper()
	change(&w.s.Spec)
	w.s.Generation++
	Expect(w.Client.Update(ctx, w.s)).To(Succeed())
}

// after returns a time after the start as the store has it.
func after(d time.Duration) int64 { return Start.Add(d).UnixMicro() }

// record is one of due times that passed from and until times after the start.
func record(reason string, from, until time.Duration, count int) types.GomegaMatcher {
	return And(HaveField("Due", after(from)), HaveField("Until", after(until)), HaveField("Count", int64(count)), HaveField("Reason", reason))
}

func everySecond(s *skeinv1.ScheduledEffect) { s.Spec.Schedules = []string{"@every 1s"} }
func suspended(s *skeinv1.ScheduledEffect)   { s.Spec.Suspend = true }
func suspend(s *skeinv1.ScheduledEffectSpec) { s.Suspend = true }
func resume(s *skeinv1.ScheduledEffectSpec)  { s.Suspend = false }

// pauses is a schedule that pauses after a failure.
func pauses(s *skeinv1.ScheduledEffect) { s.Spec.PauseAfterFailures = ptr.To(int32(1)) }

// mostADay is a schedule that fires twice a day.
func mostADay(s *skeinv1.ScheduledEffect) {
	s.Spec.DailyLimit = &skeinv1.DailyLimit{Firings: ptr.To(int64(2))}
}

var _ = Describe("Due times that pass while nothing may fire", Label("EFF-07", "EFF-08"), func() {
	var (
		w       *world
		records *recordCounter
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		records = &recordCounter{Store: w.Store}
		w.r = scheduledeffect.New(scheduledeffect.Options{Client: w.Client, Store: records, Engine: w.Engine, Clock: w.Clock})
	})
	none := func(context.Context) {}
	fail := func(ctx context.Context) {
		w.pass(ctx, time.Second)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no")
	}
	// spend has the first firing cost more than a day may.
	spend := func(ctx context.Context) {
		w.pass(ctx, time.Second)
		Expect(w.Store.EndRunning(ctx, store.FiringEnd{Key: w.firings(ctx)[0].Key(), Status: store.FiringSucceeded, Cost: 2})).To(Succeed())
	}
	costly := func(s *skeinv1.ScheduledEffect) {
		fromTemplate(s)
		s.Spec.DailyLimit = &skeinv1.DailyLimit{Cost: ptr.To("1.5")}
	}

	DescribeTable("cost one transaction and one status a minute", func(ctx SpecContext, reason string, holds func(*skeinv1.ScheduledEffect), begin func(context.Context), fired int) {
		w.declare(ctx, holds, everySecond)
		begin(ctx)
		w.pass(ctx, Start.Add(90*time.Second).Sub(w.Clock.Now()))
		w.Writes()
		records.n = 0
		w.pass(ctx, 10*time.Minute)
		Expect(records.n).To(Equal(10))
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 10}))
		first := time.Duration(fired+1) * time.Second
		Expect(w.skipped(ctx)).To(ConsistOf(record(reason, first, first+11*time.Minute, 661)))
		Expect(w.s.Status.Skipped).To(BeEquivalentTo(661))
		Expect(w.firings(ctx)).To(HaveLen(fired))
	},
		Entry("while it is suspended", "Suspended", suspended, none, 0),
		Entry("while it is paused", "Paused", pauses, fail, 1),
		Entry("when it has fired as often as it may that day", "LimitReached", mostADay, none, 2),
		Entry("when the firings of the day cost too much", "LimitReached", costly, spend, 1),
	)

	It("are paused ones, and fire nothing, when a firing by hand ends the pause", func(ctx SpecContext) {
		w.declare(ctx, pauses, everySecond, func(s *skeinv1.ScheduledEffect) { s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll} })
		fail(ctx)
		w.pass(ctx, 69*time.Second)
		Expect(w.s.Status).To(And(HaveField("Phase", "Paused"), HaveField("NextTime", BeNil())))
		w.ask(ctx, skeinv1.AnnotationRunAt, Start.Add(70*time.Second).Format(time.RFC3339Nano))
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Paused", 2*time.Second, 70*time.Second, 69)))
		w.pass(ctx, 5*time.Second)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.r = scheduledeffect.New(w.r.Options) // of another leader
		w.pass(ctx, 2*time.Second)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Paused", 2*time.Second, 75*time.Second, 74)))
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("1s"), HavePrefix("1m10s manual"), HavePrefix("1m16s schedule"), HavePrefix("1m17s schedule")))
	})

	It("are those of the day whose limit is reached", func(ctx SpecContext) {
		w.Clock.SetTime(Start.Add(12*time.Hour - 95*time.Second))
		w.declare(ctx, mostADay, everySecond)
		w.pass(ctx, 2*time.Minute)
		day := 12 * time.Hour
		Expect(w.skipped(ctx)).To(HaveExactElements(
			record("LimitReached", day+2*time.Second, day+2*time.Second, 1), record("LimitReached", day-92*time.Second, day-time.Second, 92)))
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("11h58m26s"), HavePrefix("11h58m27s"), HavePrefix("12h0m0s schedule"), HavePrefix("12h0m1s schedule")))
	})

	It("stay what they were when the limit of the day is raised", func(ctx SpecContext) {
		w.declare(ctx, mostADay, everySecond)
		w.pass(ctx, 30*time.Second)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.DailyLimit.Firings = ptr.To(int64(3)) })
		w.pass(ctx, 2*time.Second)
		Expect(w.skipped(ctx)).To(HaveExactElements(record("LimitReached", 32*time.Second, 32*time.Second, 1), record("LimitReached", 3*time.Second, 30*time.Second, 28)))
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("1s"), HavePrefix("2s"), HavePrefix("31s")))
	})

	DescribeTable("are recorded as the schedule was before an edit of its times", func(ctx SpecContext, reason string, holds func(*skeinv1.ScheduledEffect), begin func(context.Context), first int) {
		w.declare(ctx, holds, everySecond)
		begin(ctx)
		w.pass(ctx, Start.Add(90*time.Second).Sub(w.Clock.Now()))
		Expect(w.skipped(ctx)).To(ConsistOf(HaveField("Until", BeNumerically("<", after(80*time.Second)))), "some wait to be recorded")
		w.r = scheduledeffect.New(w.r.Options) // of another leader
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Schedules, s.Suspend = []string{"@every 15s"}, false })
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record(reason, time.Duration(first)*time.Second, 90*time.Second, 91-first)))
		Expect(w.s.Status.Skipped).To(BeEquivalentTo(91 - first))
		fired := len(w.firings(ctx))
		w.pass(ctx, 15*time.Second)
		if reason == "LimitReached" { // that of the day still is
			Expect(w.firings(ctx)).To(HaveLen(fired))
			return
		}
		Expect(w.fired(ctx)[fired:]).To(HaveExactElements(HavePrefix("1m45s schedule")))
	},
		Entry("of a suspended schedule", "Suspended", suspended, none, 1),
		Entry("of a paused schedule", "Paused", pauses, fail, 2),
		Entry("of a schedule whose limit of the day is reached", "LimitReached", mostADay, none, 3),
	)

	It("go on after an edit of the times of a schedule that stays suspended", func(ctx SpecContext) {
		w.declare(ctx, suspended, everySecond)
		w.pass(ctx, 30*time.Second)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Schedules = []string{"@every 2s"} })
		w.pass(ctx, 2*time.Minute)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Schedules = []string{"@every 1m"} })
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Second, 150*time.Second, 30+60)))
	})
})
