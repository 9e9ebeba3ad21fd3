package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// fires records a firing of the effect "e" without a thread.
func (e *env) fires(ctx context.Context, due int64, change ...func(*store.Firing)) store.Firing {
	GinkgoHelper()
	f := store.Firing{EffectID: "e", Due: due}
	for _, c := range change {
		c(&f)
	}
	Expect(e.store.RecordFiring(ctx, f)).To(BeTrue())
	return f
}

// claims claims all firings that are due.
func (e *env) claims(ctx context.Context, owner string) []store.Firing {
	GinkgoHelper()
	claimed, err := e.store.ClaimFirings(ctx, owner, time.Minute, map[string]int{"": 10})
	Expect(err).NotTo(HaveOccurred())
	return claimed
}

func (e *env) firing(ctx context.Context, key store.FiringKey) *store.Firing {
	GinkgoHelper()
	f, err := e.store.Firing(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	return f
}

// replica opens the store a second time, as another replica does. It is the same store when the data belongs to one process at a time.
func (e *env) replica() store.Store {
	GinkgoHelper()
	if e.backend.Exclusive() {
		return e.store
	}
	other, err := e.backend.Open(e.clock)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(other.Close)
	return other
}

func describeFiringClaims(e *env) {
	renew := func(ctx context.Context, epoch int64) []store.FiringKey {
		GinkgoHelper()
		lost, err := e.store.RenewFirings(ctx, time.Minute, []store.FiringClaim{{Key: firingKey(1), Epoch: epoch}})
		Expect(err).NotTo(HaveOccurred())
		return lost
	}
	finish := func(ctx context.Context, epoch int64, status store.FiringStatus) error {
		return e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(1), Epoch: epoch, Status: status, Error: "said", Waiting: "waits", Cost: 3, Log: "log", RetryAfter: time.Hour})
	}

	Describe("claims of firings", Label("EFF-04"), func() {
		It("keep out an earlier holder once another has the firing", func(ctx SpecContext) {
			e.fires(ctx, 1)
			Expect(e.claims(ctx, "a")).To(ConsistOf(HaveField("Epoch", int64(1))))
			e.clock.Step(time.Minute)
			Expect(e.claims(ctx, "b")).To(ConsistOf(HaveField("Epoch", int64(2))))
			before := e.firing(ctx, firingKey(1))
			e.clock.Step(time.Second)

			Expect(finish(ctx, 1, store.FiringSucceeded)).To(MatchError(store.ErrFiringLost))
			Expect(finish(ctx, 1, store.FiringPending)).To(MatchError(store.ErrFiringLost))
			Expect(renew(ctx, 1)).To(ConsistOf(firingKey(1)))
			Expect(e.firing(ctx, firingKey(1))).To(Equal(before))

			Expect(renew(ctx, 2)).To(BeEmpty())
			Expect(e.firing(ctx, firingKey(1)).AvailableAt).To(Equal(e.now() + time.Minute.Microseconds()))
			Expect(finish(ctx, 2, store.FiringSucceeded)).To(Succeed())
			Expect(renew(ctx, 2)).To(ConsistOf(firingKey(1)))
		})

		It("are not extended for a former holder in whose place another was", func(ctx SpecContext) {
			e.fires(ctx, 1)
			e.claims(ctx, "a")
			e.clock.Step(time.Minute)
			e.claims(ctx, "b")
			e.clock.Step(time.Minute)
			Expect(e.store.ClaimFirings(ctx, "a", time.Hour, map[string]int{"": 10}, firingKey(1))).To(BeEmpty())
			Expect(e.claims(ctx, "c")).To(ConsistOf(HaveField("Epoch", int64(3))))
		})

		It("keep all that an end says, and what the first attempt began", func(ctx SpecContext) {
			e.fires(ctx, 1)
			Expect(e.firing(ctx, firingKey(1)).StartedAt).To(BeZero())
			e.claims(ctx, "a")
			started := e.now()
			e.clock.Step(time.Second)
			end := store.FiringEnd{Key: firingKey(1), Epoch: 1, Status: store.FiringPending, Error: "no", RetryAfter: time.Second, Cost: 1.5, Log: "first"}
			Expect(e.store.FinishFiring(ctx, end)).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Attempts", 1), HaveField("StartedAt", started), HaveField("EndedAt", BeZero()), HaveField("Cost", 1.5),
				HaveField("Log", "first"), HaveField("Error", "no"), HaveField("AvailableAt", e.now()+time.Second.Microseconds()))))
			e.clock.Step(time.Second)
			e.claims(ctx, "a")
			end.Epoch, end.Status, end.Error, end.Log, end.Cost = 2, store.FiringSucceeded, "", "second", 0.25
			Expect(e.store.FinishFiring(ctx, end)).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Attempts", 2), HaveField("StartedAt", started), HaveField("EndedAt", e.now()),
				HaveField("Log", "second"), HaveField("Cost", 1.75), HaveField("Error", ""), HaveField("Status", store.FiringSucceeded))))
		})

		It("of firings that turn out to wait count no attempt", func(ctx SpecContext) {
			e.fires(ctx, 1)
			for epoch := int64(1); epoch <= 5; epoch++ {
				Expect(e.claims(ctx, "a")).To(ConsistOf(And(HaveField("Attempts", 1), HaveField("Epoch", epoch))))
				Expect(finish(ctx, epoch, store.FiringPending)).To(Succeed())
				Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Attempts", 0), HaveField("StartedAt", BeZero()), HaveField("Waiting", "waits"), HaveField("Status", store.FiringPending))))
				Expect(e.claims(ctx, "a")).To(BeEmpty())
				e.clock.Step(time.Hour)
			}
		})

		It("end when the firing is canceled, which ends it", Label("EFF-05"), func(ctx SpecContext) {
			for due := int64(1); due <= 3; due++ {
				e.fires(ctx, due)
			}
			e.claims(ctx, "a")
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(3), Epoch: 1, Status: store.FiringSucceeded})).To(Succeed())
			e.clock.Step(time.Second)
			Expect(e.store.CancelFirings(ctx, "not wanted", firingKey(1), firingKey(2), firingKey(3), firingKey(4))).To(Equal(2))
			canceled := e.firing(ctx, firingKey(1))
			Expect(canceled).To(HaveValue(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "not wanted"), HaveField("EndedAt", e.now()))))
			Expect(e.firing(ctx, firingKey(3)).Status).To(Equal(store.FiringSucceeded))
			Expect(renew(ctx, 1)).To(ConsistOf(firingKey(1)))
			Expect(finish(ctx, 1, store.FiringSucceeded)).To(MatchError(store.ErrFiringLost))
			e.clock.Step(time.Hour)
			Expect(e.claims(ctx, "b")).To(BeEmpty())
			Expect(e.firing(ctx, firingKey(1))).To(Equal(canceled))
			Expect(e.store.CancelFirings(ctx, "again", firingKey(1))).To(BeZero())
		})

		It("are not needed to cancel one firing of many, whatever it waits for", Label("EFF-08"), func(ctx SpecContext) {
			of := func(due int64, thread string, status store.FiringStatus) store.FiringKey {
				e.fires(ctx, due, func(f *store.Firing) { f.ThreadID, f.Status = thread, status })
				return store.FiringKey{EffectID: "e", Due: due, ThreadID: thread}
			}
			one, other := of(1, "one", store.FiringPending), of(1, "other", store.FiringPending)
			queued, later := of(2, "one", store.FiringQueued), of(2, "other", store.FiringPending)
			running := of(3, "", store.FiringRunning)
			Expect(e.store.WaitRunning(ctx, running, "", "a quota")).To(Succeed())
			Expect(e.store.CancelFirings(ctx, "by hand", one, queued, running)).To(Equal(3))
			for _, k := range []store.FiringKey{one, queued, running} {
				Expect(e.firing(ctx, k)).To(HaveValue(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "by hand"), HaveField("Waiting", ""))))
			}
			Expect(e.claims(ctx, "a")).To(ConsistOf(HaveField("ThreadID", "other"), HaveField("ThreadID", "other")))
			Expect(e.store.ReleaseQueued(ctx, "e", "one", store.FiringPending)).To(Succeed())
			Expect(e.claims(ctx, "a")).To(BeEmpty())
			for _, k := range []store.FiringKey{other, later} {
				Expect(e.firing(ctx, k).Status).To(Equal(store.FiringPending))
			}
		})

		It("are given up all at once at a shutdown, without counting the attempts", func(ctx SpecContext) {
			e.fires(ctx, 1)
			e.fires(ctx, 2)
			e.claims(ctx, "a")
			e.fires(ctx, 3)
			e.claims(ctx, "b")
			Expect(e.store.ReleaseFirings(ctx, "a")).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Attempts", 0), HaveField("StartedAt", BeZero()))))
			Expect(finish(ctx, 1, store.FiringSucceeded)).To(MatchError(store.ErrFiringLost), "of who gave it up")
			Expect(renew(ctx, 1)).To(ConsistOf(firingKey(1)))
			Expect(e.claims(ctx, "c")).To(ConsistOf(And(HaveField("Due", int64(1)), HaveField("Attempts", 1)), And(HaveField("Due", int64(2)), HaveField("Attempts", 1))))
			Expect(e.firing(ctx, firingKey(3)).Attempts).To(Equal(1))
		})

		It("are given up with the time at which those began that had begun", func(ctx SpecContext) {
			e.fires(ctx, 1)
			e.fires(ctx, 2)
			e.claims(ctx, "a")
			e.fires(ctx, 3)
			e.claims(ctx, "b")
			started := e.now()
			e.clock.Step(time.Second)
			Expect(e.store.ReleaseFirings(ctx, "a", firingKey(1), firingKey(3), firingKey(4))).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Attempts", 0), HaveField("StartedAt", started))))
			Expect(e.firing(ctx, firingKey(2))).To(HaveValue(And(HaveField("Attempts", 0), HaveField("StartedAt", BeZero()))))
			Expect(finish(ctx, 1, store.FiringSucceeded)).To(MatchError(store.ErrFiringLost), "of who gave it up")
			Expect(e.claims(ctx, "c")).To(ConsistOf(
				And(HaveField("Due", int64(1)), HaveField("Attempts", 1), HaveField("StartedAt", started)), And(HaveField("Due", int64(2)), HaveField("StartedAt", BeZero()))))
			Expect(e.firing(ctx, firingKey(3))).To(HaveValue(And(HaveField("Attempts", 1), HaveField("Epoch", int64(1)))), "of another owner")
		})

		It("are for one thread of several that have the same due time", Label("EFF-06"), func(ctx SpecContext) {
			for _, id := range []string{"t2", "t1", ""} {
				e.fires(ctx, 1, func(f *store.Firing) {
					f.ThreadID, f.Origin, f.Target = id, store.OriginSchedule, json.RawMessage(`{"counts":true}`)
				})
			}
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 1, ThreadID: "t1"})).To(BeFalse())
			claimed := e.claims(ctx, "a")
			Expect(claimed).To(HaveExactElements(HaveField("ThreadID", ""), HaveField("ThreadID", "t1"), HaveField("ThreadID", "t2")))
			Expect(claimed).To(HaveEach(And(HaveField("Origin", store.OriginSchedule), HaveField("Target", MatchJSON(`{"counts":true}`)))))
			key := store.FiringKey{EffectID: "e", Due: 1, ThreadID: "t1"}
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: key, Epoch: 1, Status: store.FiringFailed})).To(Succeed())
			Expect(e.firing(ctx, key).Status).To(Equal(store.FiringFailed))
			for _, id := range []string{"t2", ""} {
				Expect(e.firing(ctx, store.FiringKey{EffectID: "e", Due: 1, ThreadID: id}).Status).To(Equal(store.FiringPending))
			}
		})

		It("leave out what is large when they are listed briefly", func(ctx SpecContext) {
			e.fires(ctx, 1, func(f *store.Firing) {
				f.Namespace, f.Args, f.Target, f.Origin = "n", json.RawMessage(`{"x":1}`), json.RawMessage(`{"timeout":1}`), store.OriginManual
			})
			claimed, err := e.store.ClaimFirings(ctx, "a", time.Minute, map[string]int{"n": 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(1), Epoch: claimed[0].Epoch, Status: store.FiringPending, Log: "log"})).To(Succeed())
			want := *e.firing(ctx, firingKey(1))
			Expect(want).To(And(HaveField("Args", Not(BeEmpty())), HaveField("Target", Not(BeEmpty())), HaveField("Log", "log")))
			want.Args, want.Target, want.Log = nil, nil, ""
			Expect(e.store.Firings(ctx, store.FiringQuery{EffectID: "e", Brief: true})).To(HaveExactElements(want))
			Expect(e.store.Firings(ctx, store.FiringQuery{EffectID: "e", Brief: true, Active: true})).To(HaveExactElements(want))
		})

		It("wait for the time that a firing was recorded with", func(ctx SpecContext) {
			f := e.fires(ctx, 1, func(f *store.Firing) { f.AvailableAt = e.now() + time.Second.Microseconds() })
			Expect(e.claims(ctx, "a")).To(BeEmpty())
			Expect(e.firing(ctx, f.Key()).AvailableAt).To(Equal(f.AvailableAt))
			e.clock.Step(time.Second)
			Expect(e.claims(ctx, "a")).To(HaveLen(1))
		})
	})

	Describe("the removal of an effect", Label("EFF-05"), func() {
		It("cancels its firings, and nothing of it is recorded later", func(ctx SpecContext) {
			e.fires(ctx, 1)
			e.fires(ctx, 2, func(f *store.Firing) { f.Status = store.FiringQueued })
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "other", Due: 1})).To(BeTrue())
			Expect(e.store.RemoveEffect(ctx, "e")).To(BeTrue())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Status", store.FiringCanceled), HaveField("Error", Not(BeEmpty())), HaveField("EndedAt", e.now()))))
			Expect(e.firing(ctx, firingKey(2)).Status).To(Equal(store.FiringCanceled))
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 3})).To(BeFalse())
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "e"}})).To(MatchError(store.ErrConflict))
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "e", Cursor: 5}, Was: &store.EffectSchedule{}})).To(MatchError(store.ErrConflict))
			Expect(e.store.RemoveEffect(ctx, "e")).To(BeTrue(), "a repeat")
			Expect(e.store.EffectSchedule(ctx, "e")).To(HaveField("Removed", true))
			Expect(e.claims(ctx, "a")).To(ConsistOf(HaveField("EffectID", "other")))
		})

		It("is possible before anything of it was recorded", func(ctx SpecContext) {
			Expect(e.store.RemoveEffect(ctx, "e")).To(BeTrue())
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 3})).To(BeFalse())
			_, err := e.store.Firing(ctx, firingKey(3))
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		DescribeTable("changes nothing once a firing of it has begun", func(ctx SpecContext, begin func(ctx context.Context)) {
			e.fires(ctx, 1)
			begin(ctx)
			e.fires(ctx, 2)
			before := e.firing(ctx, firingKey(1))
			Expect(e.store.RemoveEffect(ctx, "e")).To(BeFalse())
			Expect(e.firing(ctx, firingKey(1))).To(Equal(before))
			Expect(e.firing(ctx, firingKey(2)).Status).To(Equal(store.FiringPending))
			e.fires(ctx, 3)
		},
			Entry("by a claim", func(ctx context.Context) { e.claims(ctx, "a") }),
			Entry("and has ended", func(ctx context.Context) {
				e.claims(ctx, "a")
				Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(1), Epoch: 1, Status: store.FiringSucceeded})).To(Succeed())
			}),
			Entry("in a Thread of its own", func(ctx context.Context) {
				e.fires(ctx, 0, func(f *store.Firing) { f.Status = store.FiringRunning })
				Expect(e.store.StartRunning(ctx, firingKey(0))).To(Succeed())
			}),
		)

		It("can be of a schedule that has fired, which then fires no more", func(ctx SpecContext) {
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "e", Cursor: 1}, Firings: []store.Firing{{EffectID: "e", Due: 1}}})).To(Succeed())
			e.claims(ctx, "a")
			was, err := e.store.EffectSchedule(ctx, "e")
			Expect(err).NotTo(HaveOccurred())
			next := *was
			next.Cursor = 2
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: next, Was: was, Firings: []store.Firing{{EffectID: "e", Due: 2}}})).To(Succeed())
			for range 2 {
				Expect(e.store.StopEffect(ctx, "e")).To(Succeed())
			}
			Expect(e.firing(ctx, firingKey(2)).Status).To(Equal(store.FiringCanceled))
			last := next
			last.Cursor = 3
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: last, Was: &next, Firings: []store.Firing{{EffectID: "e", Due: 3}}})).To(MatchError(store.ErrConflict))
			Expect(finish(ctx, 1, store.FiringSucceeded)).To(Succeed(), "what ran went on")
		})

		It("and a claim at the same time never both succeed", func(ctx SpecContext) {
			const rounds, effects = 10, 20
			other := e.replica()
			for round := range rounds {
				id := func(i int) string { return fmt.Sprintf("effect-%d-%d", round, i) }
				for i := range effects {
					e.fires(ctx, 1, func(f *store.Firing) { f.EffectID = id(i) })
				}
				var removed [effects]bool
				var claimed sync.Map
				Expect(together(2*effects, func(i int) (err error) {
					if i%2 == 0 {
						removed[i/2], err = other.RemoveEffect(ctx, id(i/2))
						return err
					}
					firings, err := e.store.ClaimFirings(ctx, fmt.Sprint(i), time.Hour, map[string]int{"": 1})
					for _, f := range firings {
						claimed.Store(f.EffectID, true)
					}
					return err
				})).To(Succeed())
				for i := range effects {
					_, taken := claimed.Load(id(i))
					Expect(removed[i] && taken).To(BeFalse(), id(i))
					want := store.FiringPending
					if removed[i] {
						want = store.FiringCanceled
					}
					Expect(e.firing(ctx, store.FiringKey{EffectID: id(i), Due: 1}).Status).To(Equal(want), id(i))
				}
				e.claims(ctx, "the rest")
				e.claims(ctx, "the rest")
			}
		})

		It("and a firing recorded at the same time leave nothing that fires", func(ctx SpecContext) {
			const effects = 20
			id := func(i int) string { return fmt.Sprint("effect-", i) }
			other := e.replica()
			Expect(together(2*effects, func(i int) error {
				if i%2 == 0 {
					_, err := other.RemoveEffect(ctx, id(i/2))
					return err
				}
				_, err := e.store.RecordFiring(ctx, store.Firing{EffectID: id(i / 2), Due: 1})
				return err
			})).To(Succeed())
			Expect(e.claims(ctx, "a")).To(BeEmpty())
		})
	})
}
