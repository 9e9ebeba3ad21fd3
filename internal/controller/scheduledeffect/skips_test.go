package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Due times in a row that do not fire", Label("EFF-07"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.r = scheduledeffect.New(scheduledeffect.Options{Client: w.Client, Store: w.Store, Engine: w.Engine, Clock: w.Clock, Recorder: w.Recorder})
	})
	events := func() (all []string) {
		for {
			select {
			case text := <-w.Recorder.Events:
				all = append(all, text)
			default:
				return all
			}
		}
	}
	counted := func(reason string) float64 {
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
	edit := func(ctx context.Context, change func(*skeinv1.ScheduledEffectSpec)) {
		GinkgoHelper()
		change(&w.s.Spec)
		w.s.Generation++
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
	}
	after := func(d time.Duration) int64 { return Start.Add(d).UnixMicro() }

	It("are one record and one Event while it is suspended, and another one when it is suspended again", func(ctx SpecContext) {
		before := counted("Suspended")
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Suspend, s.Spec.Schedules, s.Spec.FailedHistoryLimit = true, []string{"@every 1s"}, ptr.To(int32(0))
		})
		w.pass(ctx, 60*time.Second)
		w.r = scheduledeffect.New(w.r.Options) // another leader goes on with the record
		w.pass(ctx, 60*time.Second)
		Expect(w.skipped(ctx)).To(ConsistOf(And(HaveField("Due", after(time.Second)), HaveField("Until", after(120*time.Second)), HaveField("Count", int64(120)), HaveField("Reason", "Suspended"))))
		Expect(events()).To(ConsistOf(ContainSubstring("did not fire: Suspended")))
		Expect(counted("Suspended") - before).To(BeEquivalentTo(120))
		w.pass(ctx, 900*time.Millisecond)
		Expect(w.s.Status.LastSkip).To(HaveValue(And(HaveField("Time.Time", BeTemporally("==", Start.Add(time.Second))), HaveField("Count", BeNumerically(">", 100)))))

		edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend, s.FailedHistoryLimit = false, ptr.To(int32(10)) })
		w.pass(ctx, 3*time.Second)
		Expect(w.firings(ctx)).To(HaveLen(3))
		edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend = true })
		w.pass(ctx, 10*time.Second)
		Expect(w.skipped(ctx)).To(HaveExactElements(And(HaveField("Due", after(124*time.Second)), HaveField("Count", int64(10))), HaveField("Count", int64(120))))
		Expect(events()).To(ConsistOf(ContainSubstring("did not fire: Suspended")))
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
		Expect(events()).To(HaveLen(3))
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 5*time.Second)
		Expect(w.firings(ctx)).To(HaveLen(2))
		Expect(w.skipped(ctx)).To(ContainElement(And(HaveField("Due", after(22*time.Second)), HaveField("Count", int64(4)))), "it has fired in between")
	})

	It("are one record for each reason", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.DailyLimit = &skeinv1.DailyLimit{Firings: ptr.To(int64(1))} })
		w.pass(ctx, 4*time.Minute)
		edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend = true })
		w.pass(ctx, 2*time.Minute)
		edit(ctx, func(s *skeinv1.ScheduledEffectSpec) { s.Suspend = false })
		w.pass(ctx, 2*time.Minute)
		Expect(w.skipped(ctx)).To(HaveExactElements(
			And(HaveField("Reason", "LimitReached"), HaveField("Count", int64(2))), And(HaveField("Reason", "Suspended"), HaveField("Count", int64(2))), And(HaveField("Reason", "LimitReached"), HaveField("Count", int64(3)))))
	})
})
