package scheduledeffect_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// counted returns how many due times the metric counts that were skipped for a reason.
func counted(reason string) float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "skein_effect_skipped_total" && l.GetName() == "reason" && l.GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

var _ = Describe("Due times in a row that do not fire", Label("EFF-07"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.r = scheduledeffect.New(scheduledeffect.Options{Client: w.Client, Store: w.Store, Engine: w.Engine, Clock: w.Clock, Recorder: w.Recorder})
	})
	It("are one record and one Event while it is suspended, and another one when it is suspended again", func(ctx SpecContext) {
		before := counted("Suspended")
		w.declare(ctx, suspended, everySecond, func(s *skeinv1.ScheduledEffect) { s.Spec.FailedHistoryLimit = ptr.To(int32(0)) })
		w.pass(ctx, 90*time.Second)
		w.r = scheduledeffect.New(w.r.Options) // another leader goes on with the record
		w.pass(ctx, 33*time.Second)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Second, 121*time.Second, 121)))
		Expect(w.events()).To(ConsistOf(ContainSubstring("did not fire: Suspended")))
		Expect(counted("Suspended") - before).To(BeEquivalentTo(121))
		Expect(w.s.Status.Skipped).To(BeEquivalentTo(121))
		Expect(w.s.Status.LastSkip).To(HaveValue(And(HaveField("Time.Time", BeTemporally("==", Start.Add(time.Second))), HaveField("Count", int64(121)))))
		Expect(w.s.Status.NextTime.Time).To(BeTemporally("==", Start.Add(181*time.Second)))

		w.edit(ctx, resume)
		w.pass(ctx, 3*time.Second)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Second, 123*time.Second, 123)), "what had passed is recorded when it is resumed")
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("2m4s"), HavePrefix("2m5s"), HavePrefix("2m6s")))
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend, s.FailedHistoryLimit = true, ptr.To(int32(10)) })
		w.pass(ctx, 10*time.Second)
		Expect(w.skipped(ctx)).To(HaveExactElements(record("Suspended", 127*time.Second, 127*time.Second, 1), HaveField("Count", int64(123))))
		Expect(w.events()).To(ConsistOf(ContainSubstring("did not fire: Suspended")))
	})

	It("are suspended ones, and fire nothing, when the schedule was resumed while no manager ran", func(ctx SpecContext) {
		w.declare(ctx, suspended, everySecond, func(s *skeinv1.ScheduledEffect) { s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll} })
		w.pass(ctx, 70*time.Second)
		w.Clock.Step(20 * time.Second)
		w.edit(ctx, resume)
		w.r = scheduledeffect.New(w.r.Options)
		w.pass(ctx, 100*time.Millisecond)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Second, 90*time.Second, 90)))
		Expect(w.firings(ctx)).To(BeEmpty())
		w.pass(ctx, time.Second)
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("1m31s")), "a record that was made just now holds up nothing")

		w.edit(ctx, suspend)
		w.pass(ctx, 10*time.Second)
		Expect(w.skipped(ctx)).To(ContainElement(record("Suspended", 92*time.Second, 92*time.Second, 1)))
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend, s.CatchUp = false, nil })
		w.Clock.Step(5 * time.Minute)
		w.pass(ctx, 100*time.Millisecond)
		Expect(w.skipped(ctx)).To(ContainElements(record("Suspended", 92*time.Second, 151*time.Second, 60), HaveField("Reason", "Missed")), "the manager was away for longer than it gathers")
		Expect(w.fired(ctx)).To(ContainElement(ContainSubstring("schedule")), "what is punctual fires")
	})

	It("are recorded before a request by hand is answered, and until its times end", func(ctx SpecContext) {
		w.declare(ctx, suspended, everySecond, func(s *skeinv1.ScheduledEffect) {
			s.Spec.EndTime = ptr.To(skeinv1.NewTimestamp(Start.Add(100 * time.Second)))
		})
		w.pass(ctx, 30*time.Second)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Second, time.Second, 1)))
		w.ask(ctx, skeinv1.AnnotationRunAt, Start.Add(30*time.Second).Format(time.RFC3339Nano))
		w.settle(ctx)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Second, 30*time.Second, 30)))
		w.pass(ctx, 3*time.Minute)
		Expect(w.skipped(ctx)).To(ConsistOf(record("Suspended", time.Second, 100*time.Second, 100)))
	})

	selects := func(s *skeinv1.ScheduledEffect) {
		s.Spec.ThreadSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	}

	It("have a record when a selector matches no Thread", func(ctx SpecContext) {
		w.declare(ctx, selects)
		w.pass(ctx, 3*time.Minute+2*time.Second)
		Expect(w.skipped(ctx)).To(ConsistOf(And(record("NoThreadMatches", time.Minute, 3*time.Minute, 3), HaveField("Detail", "no living Thread of the namespace matches spec.threadSelector"))))
		Expect(w.events()).To(ConsistOf(ContainSubstring("did not fire: NoThreadMatches")))
		Expect(w.s.Status.LastSkip).To(HaveValue(HaveField("Reason", "NoThreadMatches")))
		Expect(w.s.Status.Skipped).To(BeEquivalentTo(3))
	})

	It("say why an effect of one time for a selector did not fire", func(ctx SpecContext) {
		w.declare(ctx, selects, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.At = nil, ptr.To(skeinv1.NewTimestamp(Start.Add(time.Minute)))
		})
		w.pass(ctx, 62*time.Second)
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "NoThreadMatches"))))
	})

	It("have one record for many threads", func(ctx SpecContext) {
		const threads = 120
		for i := range threads {
			t := &skeinv1.Thread{ObjectMeta: Meta(fmt.Sprint("t-", i))}
			t.Labels = map[string]string{"team": "x"}
			w.Create(ctx, t)
			t.Status.ThreadID = string(t.UID)
			Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
		}
		w.declare(ctx, selects, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ConcurrencyPolicy, s.Spec.MaxThreads = skeinv1.ConcurrencyForbid, threads
		})
		w.pass(ctx, 4*time.Minute)
		Expect(w.firings(ctx)).To(HaveLen(threads))
		Expect(w.skipped(ctx)).To(ConsistOf(And(record("Forbidden", 2*time.Minute, 4*time.Minute, 3), HaveField("ThreadID", ""),
			HaveField("Detail", "more than 10 threads: an earlier firing was under way"))))
		Expect(w.events()).To(HaveLen(1))
		for _, f := range w.firings(ctx)[10:] {
			Expect(w.Store.CancelFirings(ctx, "done", f.Key())).To(Equal(1))
		}
		w.pass(ctx, time.Minute)
		Expect(w.skipped(ctx)).To(HaveLen(10), "ten threads have a record each, as many as the history keeps")
		Expect(w.skipped(ctx)).To(HaveEach(And(record("Forbidden", 5*time.Minute, 5*time.Minute, 1), HaveField("ThreadID", Not(BeEmpty())))))
	})

	It("are one record while an earlier firing is under way, beside those of requests by hand", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ConcurrencyPolicy = []string{"@every 1s"}, skeinv1.ConcurrencyForbid
		})
		w.pass(ctx, 10*time.Second)
		w.ask(ctx, skeinv1.AnnotationRunAt, Start.Add(9500*time.Millisecond).Format(time.RFC3339Nano)+","+Start.Add(9600*time.Millisecond).Format(time.RFC3339Nano))
		w.pass(ctx, 10*time.Second)
		Expect(w.firings(ctx)).To(HaveLen(1))
		Expect(w.skipped(ctx)).To(ConsistOf(
			And(HaveField("Due", after(2*time.Second)), HaveField("Until", after(20*time.Second)), HaveField("Count", int64(19)), HaveField("Reason", "Forbidden")),
			HaveField("Count", int64(1)), HaveField("Count", int64(1))))
		Expect(w.events()).To(HaveLen(3))
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 5*time.Second)
		Expect(w.firings(ctx)).To(HaveLen(2))
		Expect(w.skipped(ctx)).To(ContainElement(And(HaveField("Due", after(22*time.Second)), HaveField("Count", int64(4)))), "it has fired in between")
	})

	It("are not recorded after a schedule has reached maxFirings", func(ctx SpecContext) {
		w.declare(ctx, everySecond, func(s *skeinv1.ScheduledEffect) { s.Spec.MaxFirings = ptr.To(int64(1)) })
		w.pass(ctx, time.Second)
		w.Clock.Step(10 * time.Minute)
		w.r = scheduledeffect.New(w.r.Options) // of another leader
		w.settle(ctx)
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("1s")))
		Expect(w.skipped(ctx)).To(BeEmpty())
		Expect(w.events()).To(BeEmpty())
	})

	It("are one record for each reason", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.DailyLimit = &skeinv1.DailyLimit{Firings: ptr.To(int64(1))} })
		w.pass(ctx, 4*time.Minute)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend = true })
		w.pass(ctx, 2*time.Minute)
		w.edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend = false })
		w.pass(ctx, 2*time.Minute)
		Expect(w.skipped(ctx)).To(HaveExactElements(
			And(HaveField("Reason", "LimitReached"), HaveField("Count", int64(2))), And(HaveField("Reason", "Suspended"), HaveField("Count", int64(2))), And(HaveField("Reason", "LimitReached"), HaveField("Count", int64(3)))))
	})
})
