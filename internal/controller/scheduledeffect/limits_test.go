package scheduledeffect_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// weighed is a store that adds up what its lists of firings hold.
type weighed struct {
	scheduledeffect.Store
	firings, bytes int
}

func (w *weighed) Firings(ctx context.Context, q store.FiringQuery) ([]store.Firing, error) {
	all, err := w.Store.Firings(ctx, q)
	for i := range all {
		w.firings++
		w.bytes += len(all[i].Args) + len(all[i].Target) + len(all[i].Log)
	}
	return all, err
}

var _ = Describe("A schedule with large arguments", Label("EFF-05", "EFF-08"), func() {
	var w *world
	var stored *weighed
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		stored = &weighed{Store: w.Store}
		o := w.r.Options
		o.Store = stored
		w.r = scheduledeffect.New(o)
	})
	large := func(s *skeinv1.ScheduledEffect) {
		s.Spec.Schedules = []string{"@every 1s"}
		s.Spec.Args = &runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", 1<<20-10) + `"}`)}
	}

	It("has no more firings under way than the store has room for, and reads none of their arguments again", func(ctx SpecContext) {
		w.declare(ctx, large, func(s *skeinv1.ScheduledEffect) {
			s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 140}
		})
		w.Clock.Step(140 * time.Second)
		w.settle(ctx)
		Expect(w.s.Status.Fired).To(Equal(int64(127)))
		Expect(w.skipped(ctx)).To(ConsistOf(And(HaveField("Count", int64(13)), HaveField("Reason", "LimitReached"), HaveField("Detail", "127 firings were under way"))))
		w.pass(ctx, 3*time.Second)
		Expect(stored.firings).To(BeNumerically(">", 127))
		Expect(stored.bytes).To(BeZero(), "ten thousand firings of a mebibyte each would end the manager")

		all := w.firings(ctx)
		Expect(w.Store.CancelFirings(ctx, "done", all[0].Key(), all[1].Key())).To(Equal(2))
		w.Clock.Step(2 * time.Second)
		w.settle(ctx)
		Expect(w.firings(ctx)).To(HaveLen(129), "there is room again at once")
	})

	It("refuses a backfill that the store has no room for", func(ctx SpecContext) {
		w.declare(ctx, large, func(s *skeinv1.ScheduledEffect) { s.Spec.Suspend = true })
		w.Clock.Step(200 * time.Second)
		w.settle(ctx)
		asked := Start.Add(time.Second).Format(time.RFC3339) + "/" + Start.Add(129*time.Second).Format(time.RFC3339)
		w.ask(ctx, skeinv1.AnnotationBackfill, asked)
		w.settle(ctx)
		Expect(w.answers(asked)).To(HaveExactElements("refused: it would fire 129 times while 0 firings are under way, and the limit is 127"))
		Expect(w.firings(ctx)).To(BeEmpty())
	})
})

var _ = Describe("A schedule whose firings do not end", Label("EFF-05", "EFF-07"), func() {
	const most = 10_000
	// underWay records firings that are under way, so that there is room for so many more.
	underWay := func(ctx context.Context, w *world, room int) {
		GinkgoHelper()
		w.settle(ctx)
		was, err := w.Store.EffectSchedule(ctx, string(w.s.UID))
		Expect(err).NotTo(HaveOccurred())
		record := store.DueRecord{Schedule: *was, Was: was}
		for i := range most - room {
			record.Firings = append(record.Firings, store.Firing{EffectID: string(w.s.UID), Due: Start.Add(-time.Duration(i+1) * time.Second).UnixMicro(),
				Namespace: Namespace, Name: w.s.Name, Effect: "tick", Origin: store.OriginSchedule})
		}
		Expect(w.Store.RecordDue(ctx, record)).To(Succeed())
	}

	It("has no more than 10,000 of them under way, and fires again when one has ended", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx)
		underWay(ctx, w, 2)
		minute := func(n int) { // each reconcile reads all of them
			GinkgoHelper()
			for range n {
				w.Clock.Step(time.Minute)
				w.settle(ctx)
			}
		}
		full := func(count int64, due time.Duration) OmegaMatcher {
			return And(HaveField("Count", count), HaveField("Due", Start.Add(due).UnixMicro()), HaveField("Reason", "LimitReached"), HaveField("Detail", "10000 firings were under way"))
		}
		minute(2)
		Expect(w.skipped(ctx)).To(BeEmpty())
		minute(2)
		Expect(w.skipped(ctx)).To(ConsistOf(full(2, 3*time.Minute)))
		Expect(w.Store.CancelFirings(ctx, "done", store.FiringKey{EffectID: string(w.s.UID), Due: Start.Add(time.Minute).UnixMicro()})).To(Equal(1))
		minute(1)
		Expect(w.skipped(ctx)).To(ConsistOf(full(2, 3*time.Minute)), "there is room again")
		minute(1)
		Expect(w.skipped(ctx)).To(ConsistOf(full(2, 3*time.Minute), full(1, 6*time.Minute)))
		Expect(w.s.Status.Active).To(BeEquivalentTo(most))
	})

	It("has room for no larger backfill", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.Suspend = true })
		underWay(ctx, w, 9)
		w.Clock.Step(11 * time.Minute)
		for _, c := range []struct {
			times int
			want  string
		}{{10, "refused: it would fire 10 times while 9991 firings are under way, and the limit is 10000"}, {9, "9 Fired"}} {
			asked := Start.Add(time.Minute).Format(time.RFC3339) + "/" + Start.Add(time.Duration(c.times)*time.Minute).Format(time.RFC3339)
			w.ask(ctx, skeinv1.AnnotationBackfill, asked)
			w.settle(ctx)
			Expect(w.answers(asked)).To(HaveExactElements(c.want))
		}
	})
})
