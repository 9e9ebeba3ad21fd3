package storetest

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// firingKey returns the key of a firing of the effect "e" without a thread.
func firingKey(due int64) store.FiringKey { return store.FiringKey{EffectID: "e", Due: due} }

func describeFirings(e *env) {
	Describe("firings of effects", Label("EFF-04"), func() {
		record := func(ctx SpecContext, f store.Firing) bool {
			GinkgoHelper()
			recorded, err := e.store.RecordFiring(ctx, f)
			Expect(err).NotTo(HaveOccurred())
			return recorded
		}
		claim := func(ctx SpecContext, owner string) []store.Firing {
			GinkgoHelper()
			claimed, err := e.store.ClaimFirings(ctx, owner, time.Minute, map[string]int{"": 10})
			Expect(err).NotTo(HaveOccurred())
			return claimed
		}

		It("are recorded once for each due time, with all fields", func(ctx SpecContext) {
			f := store.Firing{EffectID: "e", Due: 5, ThreadID: "t", Namespace: "ns", Name: "remind-1", Effect: "remind", Args: json.RawMessage(`{"a":1}`), HookDepth: 3}
			Expect(record(ctx, f)).To(BeTrue())
			Expect(record(ctx, f)).To(BeFalse())
			later := f
			later.Due = 6
			Expect(record(ctx, later)).To(BeTrue())
			f.Status, f.FiredAt, f.AvailableAt = store.FiringPending, e.now(), e.now()
			Expect(e.store.Firing(ctx, f.Key())).To(Equal(&f))
			_, err := e.store.Firing(ctx, store.FiringKey{EffectID: "e", Due: 7, ThreadID: "t"})
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("have not begun before they were recorded, when the clock of the replica that found them due is ahead of the store's", func(ctx SpecContext) {
			ahead := e.now() + 5000
			record(ctx, store.Firing{EffectID: "e", Due: 1, FiredAt: ahead})
			Expect(claim(ctx, "a")).To(HaveLen(1))
			Expect(e.store.Firing(ctx, firingKey(1))).To(HaveField("StartedAt", ahead))
			record(ctx, store.Firing{EffectID: "e", Due: 2, FiredAt: ahead, Status: store.FiringRunning})
			Expect(e.store.StartRunning(ctx, firingKey(2))).To(Succeed())
			Expect(e.store.Firing(ctx, firingKey(2))).To(HaveField("StartedAt", ahead))
			e.clock.Step(time.Second)
			record(ctx, store.Firing{EffectID: "e", Due: 3, FiredAt: ahead, Status: store.FiringRunning})
			Expect(e.store.StartRunning(ctx, firingKey(3))).To(Succeed())
			Expect(e.store.Firing(ctx, firingKey(3))).To(HaveField("StartedAt", e.now()))
		})

		It("are claimed by one caller, and by another when the claim expires", func(ctx SpecContext) {
			record(ctx, store.Firing{EffectID: "e", Due: 1})
			Expect(claim(ctx, "a")).To(HaveLen(1))
			Expect(claim(ctx, "b")).To(BeEmpty())
			e.clock.Step(time.Minute)
			again := claim(ctx, "b")
			Expect(again).To(HaveLen(1))
			Expect(again[0].Attempts).To(Equal(2))
			stored, err := e.store.Firing(ctx, firingKey(1))
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.Attempts).To(Equal(2))
		})

		It("stay with a claimer that still works on them, count no attempt for that, and do not block other firings", func(ctx SpecContext) {
			for due := int64(1); due <= 3; due++ {
				record(ctx, store.Firing{EffectID: "e", Due: due})
			}
			first, err := e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"": 2})
			Expect(err).NotTo(HaveOccurred())
			Expect(first).To(HaveLen(2))
			e.clock.Step(time.Minute)
			more, err := e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"": 1}, store.FiringKey{EffectID: "e", Due: 1}, store.FiringKey{EffectID: "e", Due: 2})
			Expect(err).NotTo(HaveOccurred())
			Expect(more).To(ConsistOf(And(HaveField("Due", int64(3)), HaveField("Attempts", 1))))
			Expect(claim(ctx, "b")).To(BeEmpty())
			Expect(e.store.Firing(ctx, firingKey(1))).To(HaveField("Attempts", 1))
			e.clock.Step(time.Minute)
			Expect(claim(ctx, "b")).To(ConsistOf(HaveField("Attempts", 2), HaveField("Attempts", 2), HaveField("Attempts", 2)))
		})

		It("end once", func(ctx SpecContext) {
			record(ctx, store.Firing{EffectID: "e", Due: 1})
			claim(ctx, "a")
			end := store.FiringEnd{Key: firingKey(1), Epoch: 1, Status: store.FiringFailed, Error: "it threw"}
			Expect(e.store.FinishFiring(ctx, end)).To(Succeed())
			ended := e.now()
			e.clock.Step(time.Hour)
			Expect(claim(ctx, "a")).To(BeEmpty())
			end.Status, end.Error = store.FiringSucceeded, ""
			Expect(e.store.FinishFiring(ctx, end)).To(MatchError(store.ErrFiringLost))
			f, err := e.store.Firing(ctx, firingKey(1))
			Expect(err).NotTo(HaveOccurred())
			Expect(f.Status).To(Equal(store.FiringFailed))
			Expect(f.Error).To(Equal("it threw"))
			Expect(f.EndedAt).To(Equal(ended))
			end.Key.EffectID = "none"
			Expect(e.store.FinishFiring(ctx, end)).To(MatchError(store.ErrFiringLost))
		})

		It("say while they are claimed what they wait for", Label("EFF-07"), func(ctx SpecContext) {
			record(ctx, store.Firing{EffectID: "e", Due: 1})
			held := store.FiringClaim{Key: firingKey(1), Epoch: 1}
			Expect(e.store.WaitFiring(ctx, held, "", "no claim")).To(MatchError(store.ErrFiringLost))
			claim(ctx, "a")
			claimed := *e.firing(ctx, firingKey(1))
			claimed.Waiting = "the pool is full"
			Expect(e.store.WaitFiring(ctx, held, "", claimed.Waiting)).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(Equal(claimed)))
			Expect(e.store.WaitFiring(ctx, store.FiringClaim{Key: firingKey(1), Epoch: 2}, "", "another claim")).To(MatchError(store.ErrFiringLost))
			claimed.Waiting = ""
			Expect(e.store.WaitFiring(ctx, held, "", "")).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(Equal(claimed)))
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(1), Epoch: 1, Status: store.FiringPending, Waiting: "waits"})).To(Succeed())
			Expect(e.store.WaitFiring(ctx, held, "", "")).To(MatchError(store.ErrFiringLost))
			Expect(e.firing(ctx, firingKey(1)).Waiting).To(Equal("waits"))
		})

		It("are retried after a delay", func(ctx SpecContext) {
			record(ctx, store.Firing{EffectID: "e", Due: 1})
			claim(ctx, "a")
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(1), Epoch: 1, Status: store.FiringPending, Error: "no sandbox", RetryAfter: 10 * time.Second})).To(Succeed())
			e.clock.Step(9 * time.Second)
			Expect(claim(ctx, "a")).To(BeEmpty())
			e.clock.Step(time.Second)
			again := claim(ctx, "a")
			Expect(again).To(HaveLen(1))
			Expect(again[0].Error).To(Equal("no sandbox"))
			Expect(again[0].Attempts).To(Equal(2))
		})

		It("are claimed oldest first, up to a limit", func(ctx SpecContext) {
			for _, due := range []int64{3, 1, 2} {
				record(ctx, store.Firing{EffectID: "e", Due: due})
			}
			claimed, err := e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"": 2})
			Expect(err).NotTo(HaveOccurred())
			Expect([]int64{claimed[0].Due, claimed[1].Due}).To(Equal([]int64{1, 2}))
			Expect(claimed).To(HaveLen(2))
			Expect(claim(ctx, "b")).To(HaveLen(1))
		})

		It("add up to a cost, and stay in the history from a time on", Label("EFF-08"), func(ctx SpecContext) {
			for due := int64(1); due <= 5; due++ {
				record(ctx, store.Firing{EffectID: "e", Due: due, Status: store.FiringRunning})
				Expect(e.store.EndRunning(ctx, store.FiringEnd{Key: firingKey(due), Status: store.FiringSucceeded, Cost: float64(due) / 4})).To(Succeed())
			}
			record(ctx, store.Firing{EffectID: "e", Due: 3, ThreadID: "t", Status: store.FiringRunning})
			Expect(e.store.EndRunning(ctx, store.FiringEnd{Key: store.FiringKey{EffectID: "e", Due: 3, ThreadID: "t"}, Status: store.FiringFailed, Cost: 10})).To(Succeed())
			record(ctx, store.Firing{EffectID: "other", Due: 3, Status: store.FiringRunning})
			Expect(e.store.EndRunning(ctx, store.FiringEnd{Key: store.FiringKey{EffectID: "other", Due: 3}, Status: store.FiringSucceeded, Cost: 100})).To(Succeed())
			Expect(e.store.FiringCost(ctx, "e", 2, 5)).To(Equal(0.5 + 0.75 + 1 + 10))
			Expect(e.store.FiringCost(ctx, "e", 6, 9)).To(BeZero())
			Expect(e.store.FiringCost(ctx, "none", 0, 9)).To(BeZero())

			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{Since: 3})).To(Succeed())
			Expect(e.store.FiringCost(ctx, "e", 0, 9)).To(Equal(0.75 + 1 + 1.25 + 10))
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{Succeeded: 1, Since: 100})).To(Succeed())
			Expect(e.store.FiringCost(ctx, "e", 0, 9)).To(Equal(1.25))
		})

		It("keep the last outcome of a due time when the rest is removed", Label("EFF-08"), func(ctx SpecContext) {
			ended := func(due int64, origin store.FiringOrigin, status store.FiringStatus) {
				GinkgoHelper()
				e.clock.Step(time.Second)
				record(ctx, store.Firing{EffectID: "e", Due: due, Origin: origin})
				claim(ctx, "a")
				Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(due), Epoch: 1, Status: status})).To(Succeed())
			}
			left := func() (dues []int64) {
				GinkgoHelper()
				all, err := e.store.Firings(ctx, store.FiringQuery{EffectID: "e"})
				Expect(err).NotTo(HaveOccurred())
				for _, f := range all {
					dues = append(dues, f.Due)
				}
				return dues
			}
			ended(1, store.OriginManual, store.FiringSucceeded)
			_, err := e.store.Outcome(ctx, "e")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.LastEnded(ctx, "other")
			Expect(err).To(MatchError(store.ErrNotFound))
			ended(4, store.OriginSchedule, store.FiringSucceeded)
			ended(3, store.OriginSchedule, store.FiringFailed)
			ended(2, "", store.FiringFailed)
			ended(8, "", store.FiringSucceeded) // the last one to end
			ended(5, store.OriginManual, store.FiringFailed)
			ended(6, store.OriginManual, store.FiringSucceeded)
			record(ctx, store.Firing{EffectID: "e", Due: 7, Origin: store.OriginSchedule})
			Expect(e.store.Outcome(ctx, "e")).To(HaveValue(And(HaveField("Due", int64(2)), HaveField("Status", store.FiringFailed))))
			Expect(e.store.LastEnded(ctx, "e")).To(HaveValue(And(HaveField("Due", int64(6)), HaveField("Status", store.FiringSucceeded))))
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{Succeeded: 1, Failed: 1, Outcome: true})).To(Succeed())
			Expect(left()).To(Equal([]int64{7, 6, 5, 2}))
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{Outcome: true})).To(Succeed())
			Expect(left()).To(Equal([]int64{7, 2}))
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{})).To(Succeed())
			Expect(left()).To(Equal([]int64{7}))
			_, err = e.store.Outcome(ctx, "e")
			Expect(err).To(MatchError(store.ErrNotFound))
		})
	})
}
