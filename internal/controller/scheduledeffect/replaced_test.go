package scheduledeffect_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Due times that an edit of the times replaces", Label("EFF-03", "EFF-07"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.r = scheduledeffect.New(scheduledeffect.Options{Client: w.Client, Store: w.Store, Engine: w.Engine, Clock: w.Clock, Recorder: w.Recorder})
	})
	hourly := func(s *skeinv1.ScheduledEffectSpec) { s.Schedules = []string{"@every 1h"} }

	It("are missed when they passed while no manager ran, and are not caught up", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.CatchUp, s.Spec.ConcurrencyPolicy = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll}, skeinv1.ConcurrencyAllow
		})
		w.pass(ctx, 150*time.Second)
		w.Clock.Step(30 * 24 * time.Hour)
		w.edit(ctx, hourly)
		w.r = scheduledeffect.New(w.r.Options) // of another leader
		w.settle(ctx)
		month := 30*24*60 + 2
		missed := And(record("Missed", 3*time.Minute, time.Duration(month)*time.Minute, month-2), HaveField("Detail", "the times of the schedule were changed before it could fire"))
		Expect(w.skipped(ctx)).To(ConsistOf(missed))
		Expect(w.Recorder.Events).To(Receive(ContainSubstring("did not fire: Missed (the times of the schedule were changed before it could fire)")))
		Expect(w.s.Status.Skipped).To(BeEquivalentTo(month - 2))
		Expect(w.s.Status.LastSkip).To(HaveValue(HaveField("Reason", "Missed")))

		w.pass(ctx, time.Hour)
		Expect(w.skipped(ctx)).To(ConsistOf(missed))
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("1m0s"), HavePrefix("2m0s"), HavePrefix("721h0m0s schedule")))
	})

	It("are missed when the edit comes before the manager has looked at them", func(ctx SpecContext) {
		w.declare(ctx)
		w.pass(ctx, 90*time.Second)
		w.Clock.Step(30*time.Second + 10*time.Millisecond)
		w.edit(ctx, hourly)
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Missed", 2*time.Minute, 2*time.Minute, 1)))
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("1m0s")))
	})

	It("are missed when they wait for the end of their jitter", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.Jitter = &metav1.Duration{Duration: time.Hour} })
		w.pass(ctx, 90*time.Second)
		Expect(w.firings(ctx)).To(BeEmpty(), "the jitter is longer")
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Schedules = append(s.Schedules, "@every 1h") })
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Missed", time.Minute, time.Minute, 1)))
	})

	It("have the reason that held for all of them when the schedule stays suspended", func(ctx SpecContext) {
		w.declare(ctx, suspended)
		w.pass(ctx, 90*time.Second)
		w.Clock.Step(10 * time.Minute)
		w.edit(ctx, hourly)
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Minute, 11*time.Minute, 11)))
	})

	It("are not recorded for a schedule that had reached maxFirings", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.MaxFirings = ptr.To(int64(1)) })
		w.pass(ctx, 90*time.Second)
		w.Clock.Step(10 * time.Minute)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { hourly(s); s.MaxFirings = ptr.To(int64(5)) })
		w.settle(ctx)
		Expect(w.firings(ctx)).To(HaveLen(1))
		Expect(w.skipped(ctx)).To(BeEmpty())
		Expect(w.s.Status.NextTime.Time).To(BeTemporally("==", Start.Add(time.Hour)))
	})

	It("are recorded when the Thread was missing at the time of the edit, and comes again", Label("THR-09"), func(ctx SpecContext) {
		t := w.thread(ctx)
		w.declare(ctx, forThread)
		w.pass(ctx, 90*time.Second)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.s.OwnerReferences = nil // as --cascade=orphan leaves it
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		Expect(w.Client.Delete(ctx, t)).To(Succeed())
		w.pass(ctx, 2*time.Minute)
		w.edit(ctx, hourly)
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(BeEmpty(), "nothing is decided without the Thread")
		w.thread(ctx)
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Missed", 2*time.Minute, 3*time.Minute, 2)))
	})
})

var _ = Describe("A schedule that has fired as often as it may", Label("EFF-03"), func() {
	DescribeTable("counts from now when it may fire more often, and records nothing of the time in between", func(ctx SpecContext, byHand int, edit ...func(*skeinv1.ScheduledEffect)) {
		w := newWorld(ctx)
		w.declare(ctx, append(edit, func(s *skeinv1.ScheduledEffect) { s.Spec.MaxFirings = ptr.To(int64(1)) })...)
		w.pass(ctx, 90*time.Second)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, time.Second)
		Expect(w.s.Status.Phase).To(Equal("Finished"))
		for range byHand {
			w.Clock.Step(time.Second)
			w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
			w.settle(ctx)
			Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
			w.pass(ctx, 2*time.Second)
		}
		scheduled := func() (n int) {
			for _, f := range w.firings(ctx) {
				if f.Origin != store.OriginManual {
					n++
				}
			}
			return n
		}
		before := scheduled()
		w.Clock.Step(7 * 24 * time.Hour)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.MaxFirings = ptr.To(int64(3)) })
		w.settle(ctx)
		Expect(scheduled()).To(Equal(before), "what it had no part in is not caught up")
		Expect(w.skipped(ctx)).To(BeEmpty())
		w.pass(ctx, time.Minute)
		Expect(scheduled()).To(Equal(before + 1))
		Expect(w.skipped(ctx)).To(BeEmpty())
	},
		Entry("as it is by default", 0),
		Entry("when it was run by hand since", 10),
		Entry("when it was run by hand since, and catches up on all", 10, func(s *skeinv1.ScheduledEffect) { s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll} }),
		Entry("when it catches up on all", 0, func(s *skeinv1.ScheduledEffect) { s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll} }),
	)

	It("counts from now while it runs by hand", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.MaxFirings, s.Spec.SuccessfulHistoryLimit = ptr.To(int64(1)), ptr.To(int32(0))
		})
		w.pass(ctx, 90*time.Second)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, time.Second)
		w.Clock.Step(time.Hour)
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.pass(ctx, 20*time.Second)
		Expect(w.s.Status.CompletionTime).To(BeNil())
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.MaxFirings = ptr.To(int64(9)) })
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Origin", store.OriginManual)))
		Expect(w.skipped(ctx)).To(BeEmpty())
	})

	It("records what is due after the edit, although a crash keeps the status from saying so", Label("EFF-07"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.MaxFirings = ptr.To(int64(1)) })
		w.pass(ctx, 90*time.Second)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, time.Second)
		w.Clock.Step(time.Hour)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.MaxFirings = ptr.To(int64(9)) })
		before := w.s.DeepCopy()
		w.settle(ctx)
		w.s.Status = before.Status
		Expect(w.Client.Status().Update(ctx, w.s)).To(Succeed())
		w.Clock.Step(150 * time.Second)
		w.settle(ctx)
		Expect(w.fired(ctx)).To(HaveLen(2))
		Expect(w.skipped(ctx)).To(ConsistOf(HaveField("Count", BeEquivalentTo(2))))
	})
})
