package storetest

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeMissed(e *env) {
	const second = int64(1_000_000)
	const late = "it could not begin within 1m0s of its due time"
	skipped := func(ctx context.Context) int64 {
		GinkgoHelper()
		s, err := e.store.EffectSchedule(ctx, "e")
		Expect(err).NotTo(HaveOccurred())
		return s.Skipped
	}

	Describe("firings that could not begin in time", Label("EFF-05", "EFF-07"), func() {
		var was store.EffectSchedule
		BeforeEach(func(ctx SpecContext) {
			was = store.EffectSchedule{EffectID: "e", Namespace: "n", Name: "daily", Cursor: 10, Skipped: 2}
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: was})).To(Succeed())
		})
		miss := func(ctx context.Context, end store.FiringEnd) (store.EffectSkip, bool) {
			GinkgoHelper()
			end.Status, end.Error, end.Counts = store.FiringFailed, late, true
			record, begins, err := e.store.MissFiring(ctx, end)
			Expect(err).NotTo(HaveOccurred())
			return record, begins
		}

		It("are canceled and recorded as skipped, and are no failures", func(ctx SpecContext) {
			e.fires(ctx, 1)
			e.fires(ctx, 2, func(f *store.Firing) { f.Status = store.FiringRunning })
			claimed := e.claims(ctx, "a")
			Expect(claimed).To(HaveLen(1))
			record, begins := miss(ctx, store.FiringEnd{Key: firingKey(1), Epoch: claimed[0].Epoch, Log: "nothing"})
			want := store.EffectSkip{EffectID: "e", Due: 1, Until: 1, Count: 1, Reason: "Missed", Detail: late, RecordedAt: e.now()}
			Expect(record).To(Equal(want))
			Expect(begins).To(BeTrue())
			Expect(e.store.EffectSkips(ctx, "e", 0)).To(ConsistOf(want))
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Status", store.FiringCanceled), HaveField("Error", late), HaveField("Waiting", ""), HaveField("EndedAt", e.now()),
				HaveField("Attempts", 0), HaveField("StartedAt", BeZero()))))
			miss(ctx, store.FiringEnd{Key: firingKey(2)})
			Expect(e.firing(ctx, firingKey(2))).To(HaveValue(And(HaveField("Status", store.FiringCanceled), HaveField("Error", late))))
			Expect(e.store.EffectSchedule(ctx, "e")).To(HaveValue(And(HaveField("Failures", BeZero()), HaveField("Skipped", int64(4)))))
			for _, end := range []store.FiringEnd{{Key: firingKey(1), Epoch: claimed[0].Epoch}, {Key: firingKey(2)}, {Key: firingKey(3)}} {
				_, _, err := e.store.MissFiring(ctx, end)
				Expect(err).To(MatchError(store.ErrFiringLost))
			}
			Expect(skipped(ctx)).To(Equal(int64(4)))
		})

		It("of due times in a row have one record, each thread its own", func(ctx SpecContext) {
			of := func(due int64, thread string) (int64, bool) {
				GinkgoHelper()
				e.clock.Step(time.Second)
				due *= second
				e.fires(ctx, due, func(f *store.Firing) { f.Status, f.ThreadID = store.FiringRunning, thread })
				record, begins := miss(ctx, store.FiringEnd{Key: store.FiringKey{EffectID: "e", Due: due, ThreadID: thread}})
				return record.Count, begins
			}
			for _, c := range []struct {
				due    int64
				thread string
				count  int64
			}{{1, "", 1}, {1, "t", 1}, {3, "", 2}, {4, "", 3}, {2, "t", 2}, {2, "", 1}} {
				count, begins := of(c.due, c.thread)
				Expect(count).To(Equal(c.count), "%v", c)
				Expect(begins).To(Equal(c.count == 1), "%v", c)
			}
			e.fires(ctx, 5*second, func(f *store.Firing) { f.Status = store.FiringRunning })
			count, _ := of(6, "")
			Expect(count).To(Equal(int64(1)), "it has fired in between")
			byHand := firingKey(7*second + 1)
			e.fires(ctx, byHand.Due, func(f *store.Firing) { f.Status, f.Origin = store.FiringRunning, store.OriginManual })
			count, _ = of(8, "")
			Expect(count).To(Equal(int64(2)), "a firing by hand changes nothing")
			record, begins := miss(ctx, store.FiringEnd{Key: byHand})
			Expect(record.Count).To(Equal(int64(1)), "and has a record of its own")
			Expect(begins).To(BeTrue())
			Expect(e.store.EffectSkips(ctx, "e", 0)).To(ConsistOf(
				And(HaveField("Due", 1*second), HaveField("Until", 4*second), HaveField("Count", int64(3)), HaveField("ThreadID", "")), And(HaveField("Until", 2*second), HaveField("ThreadID", "t")),
				And(HaveField("Due", 2*second), HaveField("Count", int64(1)), HaveField("ThreadID", "")), And(HaveField("Due", 6*second), HaveField("Until", 8*second)), HaveField("Due", byHand.Due)))
		})

		It("are counted beside what the schedule skips at the same time", func(ctx SpecContext) {
			e.fires(ctx, 1, func(f *store.Firing) { f.Status = store.FiringRunning })
			miss(ctx, store.FiringEnd{Key: firingKey(1)})
			next := was // as it was read before that
			next.Cursor, next.Skipped = 20, was.Skipped+5
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: next, Was: &was})).To(Succeed())
			Expect(skipped(ctx)).To(Equal(int64(8)))
		})
	})
}
