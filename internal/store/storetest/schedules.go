package storetest

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeSchedules(e *env) {
	due := func(ctx context.Context, d store.DueRecord) {
		GinkgoHelper()
		Expect(e.store.RecordDue(ctx, d)).To(Succeed())
	}
	begin := func(ctx context.Context) store.EffectSchedule {
		GinkgoHelper()
		s := store.EffectSchedule{EffectID: "e", Namespace: "n", Name: "daily", Fingerprint: "f", Times: `[["@daily"]]`, Cursor: 10, Fired: 1, Skipped: 2, Day: "2030-01-01", DayFired: 1}
		due(ctx, store.DueRecord{Schedule: s})
		return s
	}
	statuses := func(ctx context.Context, q store.FiringQuery) map[int64]store.FiringStatus {
		GinkgoHelper()
		firings, err := e.store.Firings(ctx, q)
		Expect(err).NotTo(HaveOccurred())
		all := map[int64]store.FiringStatus{}
		for _, f := range firings {
			all[f.Due] = f.Status
		}
		return all
	}
	end := func(ctx context.Context, due, epoch int64, status store.FiringStatus) {
		GinkgoHelper()
		Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(due), Epoch: epoch, Status: status, Counts: true})).To(Succeed())
	}

	Describe("schedules of effects", Label("EFF-07"), func() {
		It("go on from where they are stored to be, or write nothing", func(ctx SpecContext) {
			_, err := e.store.EffectSchedule(ctx, "e")
			Expect(err).To(MatchError(store.ErrNotFound))
			was := begin(ctx)
			Expect(e.store.EffectSchedule(ctx, "e")).To(HaveValue(Equal(was)))
			e.fires(ctx, 1)

			next := was
			next.Cursor, next.Fired, next.Skipped, next.Day, next.DayFired, next.Fingerprint, next.Times = 20, 2, 5, "2030-01-02", 3, "g", `[["@hourly"]]`
			d := store.DueRecord{Schedule: next, Was: &was, Firings: []store.Firing{{EffectID: "e", Due: 15}}, Cancel: []store.FiringKey{firingKey(1)},
				Skips: []store.EffectSkip{{EffectID: "e", Due: 16, Until: 18, Count: 3, Reason: "Missed"}}}
			stale := func(change func(*store.DueRecord)) {
				GinkgoHelper()
				wrong := d
				change(&wrong)
				Expect(e.store.RecordDue(ctx, wrong)).To(MatchError(store.ErrConflict))
				Expect(statuses(ctx, store.FiringQuery{EffectID: "e"})).To(Equal(map[int64]store.FiringStatus{1: store.FiringPending}))
				Expect(e.store.EffectSkips(ctx, "e", 0)).To(BeEmpty())
				Expect(e.store.EffectSchedule(ctx, "e")).To(HaveValue(Equal(was)))
			}
			stale(func(d *store.DueRecord) { d.Was = nil })
			stale(func(d *store.DueRecord) { d.Was = &store.EffectSchedule{Fingerprint: "f", Cursor: 9} })
			stale(func(d *store.DueRecord) { d.Was = &store.EffectSchedule{Fingerprint: "g", Cursor: 10} })

			due(ctx, d)
			Expect(e.store.EffectSchedule(ctx, "e")).To(HaveValue(Equal(next)))
			Expect(statuses(ctx, store.FiringQuery{EffectID: "e"})).To(Equal(map[int64]store.FiringStatus{1: store.FiringCanceled, 15: store.FiringPending}))
			Expect(e.firing(ctx, firingKey(1)).Error).NotTo(BeEmpty())
			Expect(e.store.EffectSkips(ctx, "e", 0)).To(ConsistOf(store.EffectSkip{EffectID: "e", Due: 16, Until: 18, Count: 3, Reason: "Missed", RecordedAt: e.now()}))
			Expect(e.store.RecordDue(ctx, d)).To(MatchError(store.ErrConflict), "a repeat")
		})

		It("go on with a record of due times that did not fire", func(ctx SpecContext) {
			was := begin(ctx)
			skip := func(k store.EffectSkip) {
				GinkgoHelper()
				e.clock.Step(time.Second)
				k.EffectID, k.Reason = "e", "Suspended"
				next := was
				next.Cursor++
				due(ctx, store.DueRecord{Schedule: next, Was: &was, Skips: []store.EffectSkip{k}})
				was = next
			}
			skip(store.EffectSkip{Due: 11, Until: 11, Count: 1})
			skip(store.EffectSkip{Due: 11, Until: 11, Count: 1, ThreadID: "t"})
			skip(store.EffectSkip{Due: 11, Until: 13, Count: 3})
			skip(store.EffectSkip{Due: 11, Until: 12, Count: 2}) // a replica that is behind
			Expect(e.store.EffectSkips(ctx, "e", 0)).To(HaveExactElements(
				And(HaveField("Until", int64(13)), HaveField("Count", int64(3)), HaveField("RecordedAt", e.now()-time.Second.Microseconds())),
				And(HaveField("ThreadID", "t"), HaveField("Count", int64(1)))))
		})

		It("record a due time once, when several replicas do it at once", func(ctx SpecContext) {
			was := begin(ctx)
			won := make([]bool, 8)
			Expect(together(len(won), func(i int) error {
				next := was
				next.Cursor, next.Fired = 20, was.Fired+1
				err := e.store.RecordDue(ctx, store.DueRecord{Schedule: next, Was: &was, Firings: []store.Firing{{EffectID: "e", Due: 15 + int64(i)}}})
				if won[i] = err == nil; !won[i] {
					Expect(err).To(MatchError(store.ErrConflict))
				}
				return nil
			})).To(Succeed())
			Expect(won).To(ContainElement(true))
			Expect(e.store.Firings(ctx, store.FiringQuery{EffectID: "e"})).To(HaveLen(1))
			Expect(e.store.EffectSchedule(ctx, "e")).To(HaveField("Fired", was.Fired+1))
		})

		It("count the failures in a row of the firings that count", Label("EFF-08"), func(ctx SpecContext) {
			failures := func() int64 {
				GinkgoHelper()
				s, err := e.store.EffectSchedule(ctx, "e")
				Expect(err).NotTo(HaveOccurred())
				return s.Failures
			}
			was := begin(ctx)
			for n := int64(1); n <= 6; n++ {
				e.fires(ctx, n)
			}
			e.claims(ctx, "a")
			end(ctx, 1, 1, store.FiringFailed)
			end(ctx, 2, 1, store.FiringFailed)
			Expect(failures()).To(Equal(int64(2)))
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(3), Epoch: 1, Status: store.FiringFailed})).To(Succeed())
			end(ctx, 4, 1, store.FiringPending)
			Expect(e.store.CancelFirings(ctx, "no", firingKey(4))).To(Equal(1))
			Expect(failures()).To(Equal(int64(2)), "neither one that does not count, nor another attempt, nor a canceled one")

			next := was
			next.Cursor, next.Failures = 20, 9
			due(ctx, store.DueRecord{Schedule: next, Was: &was})
			Expect(failures()).To(Equal(int64(2)), "only ends change it")
			end(ctx, 5, 1, store.FiringSucceeded)
			Expect(failures()).To(BeZero())
			end(ctx, 6, 1, store.FiringFailed)
			Expect(failures()).To(Equal(int64(1)))
			was, next.Cursor = next, 30
			due(ctx, store.DueRecord{Schedule: next, Was: &was, ResetFailures: true})
			Expect(failures()).To(BeZero())
		})

		It("release one queued firing of a thread when none is under way", func(ctx SpecContext) {
			of := func(n int64, thread string, status store.FiringStatus) {
				GinkgoHelper()
				e.fires(ctx, n, func(f *store.Firing) { f.ThreadID, f.Status = thread, status })
			}
			of(1, "", store.FiringPending)
			of(3, "", store.FiringQueued)
			of(2, "", store.FiringQueued)
			of(1, "t", store.FiringQueued)
			Expect(e.claims(ctx, "a")).To(HaveLen(1), "queued ones are not claimed")
			release := func(thread string, to store.FiringStatus) {
				GinkgoHelper()
				Expect(e.store.ReleaseQueued(ctx, "e", thread, to)).To(Succeed())
			}
			release("", store.FiringPending)
			Expect(e.claims(ctx, "a")).To(BeEmpty(), "one is under way")
			end(ctx, 1, 1, store.FiringFailed)
			e.clock.Step(time.Second)
			release("", store.FiringPending)
			release("", store.FiringPending)
			Expect(e.claims(ctx, "a")).To(ConsistOf(And(HaveField("Due", int64(2)), HaveField("ThreadID", ""), HaveField("AvailableAt", e.now()))))
			end(ctx, 2, 1, store.FiringSucceeded)
			release("", store.FiringRunning)
			Expect(e.firing(ctx, firingKey(3)).Status).To(Equal(store.FiringRunning))
			Expect(e.firing(ctx, store.FiringKey{EffectID: "e", Due: 1, ThreadID: "t"}).Status).To(Equal(store.FiringQueued))
		})

		It("have firings that a Thread of their own runs, which no worker claims", func(ctx SpecContext) {
			begin(ctx)
			for n := int64(1); n <= 2; n++ {
				e.fires(ctx, n, func(f *store.Firing) { f.Status = store.FiringRunning })
			}
			Expect(e.claims(ctx, "a")).To(BeEmpty())
			Expect(e.store.WaitRunning(ctx, firingKey(1), "ns", "a quota")).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Waiting", "a quota"), HaveField("Attempts", 0))))
			Expect(e.store.StartRunning(ctx, firingKey(1))).To(Succeed())
			Expect(e.firing(ctx, firingKey(1)).Waiting).To(BeEmpty())
			started := e.now()
			Expect(e.store.WaitRunning(ctx, firingKey(1), "ns", "its Thread")).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("Waiting", "its Thread"), HaveField("StartedAt", started))))
			Expect(e.store.WaitRunning(ctx, firingKey(1), "ns", "")).To(Succeed())
			Expect(e.firing(ctx, firingKey(1)).Waiting).To(BeEmpty())
			e.clock.Step(time.Second)
			Expect(e.store.StartRunning(ctx, firingKey(1))).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(HaveValue(And(HaveField("StartedAt", started), HaveField("Attempts", 1))))
			failed := store.FiringEnd{Key: firingKey(1), Status: store.FiringFailed, Error: "it failed", Cost: 2.25, Counts: true}
			Expect(e.store.EndRunning(ctx, failed)).To(Succeed())
			Expect(e.store.WaitRunning(ctx, firingKey(1), "ns", "too late")).To(Succeed())
			ended := e.firing(ctx, firingKey(1))
			Expect(ended).To(HaveValue(And(HaveField("Waiting", ""), HaveField("Status", store.FiringFailed), HaveField("Error", "it failed"), HaveField("Cost", 2.25), HaveField("EndedAt", e.now()))))
			e.clock.Step(time.Second)
			failed.Status = store.FiringSucceeded
			Expect(e.store.EndRunning(ctx, failed)).To(Succeed())
			Expect(e.firing(ctx, firingKey(1))).To(Equal(ended))
			Expect(e.store.EffectSchedule(ctx, "e")).To(HaveField("Failures", int64(1)))
			Expect(e.store.CancelFirings(ctx, "replaced", firingKey(2))).To(Equal(1))
			Expect(e.store.EndRunning(ctx, store.FiringEnd{Key: firingKey(2), Status: store.FiringSucceeded, Counts: true})).To(Succeed())
			Expect(e.firing(ctx, firingKey(2)).Status).To(Equal(store.FiringCanceled))
			Expect(e.store.EffectSchedule(ctx, "e")).To(HaveField("Failures", int64(1)))
		})
	})

	Describe("the history of an effect", Label("EFF-08"), func() {
		dues := func(ctx context.Context, q store.FiringQuery) (dues []int64) {
			GinkgoHelper()
			q.EffectID = "e"
			firings, err := e.store.Firings(ctx, q)
			Expect(err).NotTo(HaveOccurred())
			for _, f := range firings {
				dues = append(dues, f.Due)
			}
			return dues
		}

		It("is listed the newest first, in pages", func(ctx SpecContext) {
			first := e.now() // a number as large as due times are
			for n := range int64(5) {
				e.fires(ctx, first+n)
			}
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "other", Due: first})).To(BeTrue())
			Expect(dues(ctx, store.FiringQuery{})).To(Equal([]int64{first + 4, first + 3, first + 2, first + 1, first}))
			Expect(dues(ctx, store.FiringQuery{Limit: 2})).To(Equal([]int64{first + 4, first + 3}))
			Expect(dues(ctx, store.FiringQuery{Before: first + 3, Limit: 2})).To(Equal([]int64{first + 2, first + 1}))
			Expect(dues(ctx, store.FiringQuery{Before: first})).To(BeEmpty())
			Expect(e.store.CancelFirings(ctx, "no", firingKey(first+4), firingKey(first+1))).To(Equal(2))
			Expect(dues(ctx, store.FiringQuery{Active: true})).To(Equal([]int64{first + 3, first + 2, first}))
			Expect(dues(ctx, store.FiringQuery{Active: true, Before: first + 3, Limit: 1})).To(Equal([]int64{first + 2}))
		})

		It("keeps the newest when the rest is removed, also of those that ended together", func(ctx SpecContext) {
			skips := func(n int) (all []store.EffectSkip) {
				for i := range n {
					all = append(all, store.EffectSkip{EffectID: "e", Due: int64(i), Until: int64(i), Count: 1, Reason: "Missed"})
				}
				return all
			}
			was := begin(ctx)
			due(ctx, store.DueRecord{Schedule: was, Was: &was, Skips: skips(5)})
			for n := int64(1); n <= 9; n++ {
				e.fires(ctx, n)
			}
			e.claims(ctx, "a")
			end(ctx, 1, 1, store.FiringSucceeded)
			end(ctx, 2, 1, store.FiringSucceeded)
			end(ctx, 3, 1, store.FiringSucceeded)
			end(ctx, 4, 1, store.FiringFailed)
			e.clock.Step(time.Second)
			end(ctx, 5, 1, store.FiringFailed)
			Expect(e.store.CancelFirings(ctx, "no", firingKey(6), firingKey(7))).To(Equal(2))
			Expect(e.store.PruneFirings(ctx, "other", store.HistoryLimits{})).To(Succeed())
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{Succeeded: 2, Failed: 3})).To(Succeed())
			Expect(dues(ctx, store.FiringQuery{})).To(Equal([]int64{9, 8, 7, 6, 5, 3, 2}))
			Expect(e.store.EffectSkips(ctx, "e", 0)).To(HaveExactElements(HaveField("Due", int64(4)), HaveField("Due", int64(3)), HaveField("Due", int64(2))))
			Expect(e.store.EffectSkips(ctx, "e", 1)).To(ConsistOf(HaveField("Due", int64(4))))
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{})).To(Succeed())
			Expect(dues(ctx, store.FiringQuery{})).To(Equal([]int64{9, 8}), "those that have not ended")
			Expect(e.store.EffectSkips(ctx, "e", 0)).To(ConsistOf(HaveField("Due", int64(4))), "more due times may belong to it")
		})

		It("that was removed still keeps a backfill from firing again", Label("EFF-04"), func(ctx SpecContext) {
			was := begin(ctx)
			backfill := func(times ...int64) {
				GinkgoHelper()
				record := store.DueRecord{Schedule: was, Was: &was}
				for _, n := range times {
					record.Firings = append(record.Firings, store.Firing{EffectID: "e", Due: n, Origin: store.OriginBackfill})
				}
				due(ctx, record)
			}
			for _, n := range []int64{1, 2, 4} {
				e.fires(ctx, n, func(f *store.Firing) { f.Origin = store.OriginSchedule })
			}
			e.fires(ctx, 3, func(f *store.Firing) { f.Origin = store.OriginManual })
			e.claims(ctx, "a")
			for _, n := range []int64{1, 2, 3, 4} {
				end(ctx, n, 1, store.FiringSucceeded)
			}
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{})).To(Succeed())
			Expect(dues(ctx, store.FiringQuery{})).To(BeEmpty())
			fired, err := e.store.FiredTimes(ctx, "e")
			Expect(err).NotTo(HaveOccurred())
			Expect([]bool{fired.Has(1), fired.Has(2), fired.Has(3), fired.Has(4), fired.Has(5)}).To(Equal([]bool{true, true, false, true, false}))
			backfill(1, 2, 3, 4, 5)
			Expect(dues(ctx, store.FiringQuery{})).To(Equal([]int64{5, 3}))
			e.claims(ctx, "a")
			end(ctx, 5, 1, store.FiringSucceeded)
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{})).To(Succeed())
			backfill(4, 5)
			Expect(dues(ctx, store.FiringQuery{})).To(Equal([]int64{3}), "what was backfilled has fired, too")
			Expect(e.store.ForgetEffect(ctx, "e")).To(Succeed())
			due(ctx, store.DueRecord{Schedule: was})
			backfill(5)
			Expect(dues(ctx, store.FiringQuery{})).To(Equal([]int64{5}))
		})

		It("answers each request by hand once, also when it was removed", func(ctx SpecContext) {
			was := begin(ctx)
			record := store.DueRecord{Schedule: was, Was: &was, Requests: []store.FiringRequest{{ID: "one", Answer: json.RawMessage(`{"fired":1}`)}, {ID: "two"}}, Firings: []store.Firing{{EffectID: "e", Due: 1, Origin: store.OriginManual}}}
			due(ctx, record)
			Expect(e.store.AnsweredRequests(ctx, "e", "two", "three", "one")).To(And(HaveLen(2), HaveKeyWithValue("one", json.RawMessage(`{"fired":1}`)), HaveKeyWithValue("two", BeEmpty())))
			Expect(e.store.AnsweredRequests(ctx, "f", "one")).To(BeEmpty())
			record.Firings[0].Due = 2
			Expect(e.store.RecordDue(ctx, record)).To(MatchError(store.ErrConflict))
			record.Requests, record.Firings[0].Due = []store.FiringRequest{{ID: "three"}}, 1
			Expect(e.store.RecordDue(ctx, record)).To(MatchError(store.ErrConflict), "there is a firing at that time")
			Expect(e.store.AnsweredRequests(ctx, "e", "three")).To(BeEmpty())
			Expect(dues(ctx, store.FiringQuery{})).To(Equal([]int64{1}))
			e.clock.Step(47 * time.Hour)
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{})).To(Succeed())
			Expect(e.store.AnsweredRequests(ctx, "e", "one")).To(HaveKey("one"))
			e.clock.Step(2 * time.Hour)
			Expect(e.store.PruneFirings(ctx, "e", store.HistoryLimits{})).To(Succeed())
			Expect(e.store.AnsweredRequests(ctx, "e", "one")).To(BeEmpty())
		})

		It("has firings of one record that replace each other", func(ctx SpecContext) {
			was := begin(ctx)
			due(ctx, store.DueRecord{Schedule: was, Was: &was, Cancel: []store.FiringKey{firingKey(1)}, Firings: []store.Firing{{EffectID: "e", Due: 1}, {EffectID: "e", Due: 2}}})
			Expect(statuses(ctx, store.FiringQuery{EffectID: "e"})).To(Equal(map[int64]store.FiringStatus{1: store.FiringCanceled, 2: store.FiringPending}))
		})

		It("goes with the effect", func(ctx SpecContext) {
			was := begin(ctx)
			due(ctx, store.DueRecord{Schedule: was, Was: &was, Firings: []store.Firing{{EffectID: "e", Due: 1}}, Skips: []store.EffectSkip{{EffectID: "e", Reason: "Missed"}}})
			e.claims(ctx, "a")
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "d", Due: 1, ThreadID: "t"})).To(BeTrue())
			Expect(e.store.RemoveEffect(ctx, "g")).To(BeTrue())
			later := e.clock.Now().Add(time.Second)
			Expect(e.store.StoredEffects(ctx, "", later, 0)).To(Equal([]string{"e", "g"}))
			Expect(e.store.StoredEffects(ctx, "", later, 1)).To(Equal([]string{"e"}))
			Expect(e.store.StoredEffects(ctx, "e", later, 1)).To(Equal([]string{"g"}))
			Expect(e.store.StoredEffects(ctx, "", e.clock.Now(), 0)).To(BeEmpty(), "they have just changed")
			Expect(e.store.ForgetEffect(ctx, "e")).To(Succeed())
			Expect(e.store.StoredEffects(ctx, "", later, 0)).To(Equal([]string{"g"}))
			Expect(dues(ctx, store.FiringQuery{})).To(BeEmpty())
			Expect(e.store.EffectSkips(ctx, "e", 0)).To(BeEmpty())
			_, err := e.store.EffectSchedule(ctx, "e")
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.store.FinishFiring(ctx, store.FiringEnd{Key: firingKey(1), Epoch: 1, Status: store.FiringSucceeded})).To(MatchError(store.ErrFiringLost))
			Expect(e.store.RenewFirings(ctx, time.Minute, []store.FiringClaim{{Key: firingKey(1), Epoch: 1}})).To(ConsistOf(firingKey(1)))
		})
	})

	It("effects whose firings have ended, or have not, are listed, and arguments go when their firing has them", Label("EFF-04"), func(ctx SpecContext) {
		id := e.thread(ctx)
		for _, n := range []string{"a", "b", "c"} {
			Expect(e.store.PutEffectArgs(ctx, store.EffectArgs{ID: n, Namespace: "default", ThreadID: id, Args: json.RawMessage(`{"n":1}`)})).To(Succeed())
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "e-" + n, Due: 1, ThreadID: id, Namespace: "default", Name: n, TakesArgs: n})).To(BeTrue())
			_, err := e.store.EffectArgs(ctx, id, n)
			Expect(err).To(MatchError(store.ErrNotFound))
		}
		Expect(e.store.PutEffectArgs(ctx, store.EffectArgs{ID: "kept", Namespace: "default", ThreadID: id, Args: json.RawMessage(`{}`)})).To(Succeed())
		Expect(e.store.EffectArgs(ctx, id, "kept")).To(MatchJSON(`{}`))
		Expect(e.store.StoredEffectArgs(ctx, id)).To(Equal([]string{"kept"}))
		Expect(e.store.StoredEffectArgs(ctx, "another")).To(BeEmpty())
		Expect(e.store.RemoveEffectArgs(ctx, id, "kept")).To(Succeed())
		_, err := e.store.EffectArgs(ctx, id, "kept")
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(e.store.PutEffectArgs(ctx, store.EffectArgs{ID: "due", Namespace: "default", ThreadID: id, Args: json.RawMessage(`{}`)})).To(Succeed())
		Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: "s"},
			Firings: []store.Firing{{EffectID: "s", Due: 1, ThreadID: id, Namespace: "default", Origin: store.OriginSchedule, TakesArgs: "due"}}})).To(Succeed())
		_, err = e.store.EffectArgs(ctx, id, "due")
		Expect(err).To(MatchError(store.ErrNotFound))
		later := func() time.Time { return e.clock.Now().Add(time.Second) }
		Expect(e.store.EndedEffects(ctx, "", later(), 0)).To(BeEmpty(), "they are pending")
		a, b, c := store.FiredEffect{EffectID: "e-a", Namespace: "default", Name: "a"}, store.FiredEffect{EffectID: "e-b", Namespace: "default", Name: "b"},
			store.FiredEffect{EffectID: "e-c", Namespace: "default", Name: "c"}
		scheduled := store.FiredEffect{EffectID: "s", Namespace: "default"}
		Expect(e.store.UnendedEffects(ctx, "", 0)).To(Equal([]store.FiredEffect{a, b, c, scheduled}))
		Expect(e.store.UnendedEffects(ctx, "e-a", 1)).To(Equal([]store.FiredEffect{b}))
		Expect(e.store.CancelFirings(ctx, "no", store.FiringKey{EffectID: "e-a", Due: 1, ThreadID: id}, store.FiringKey{EffectID: "e-b", Due: 1, ThreadID: id},
			store.FiringKey{EffectID: "s", Due: 1, ThreadID: id})).To(Equal(3))
		Expect(e.store.UnendedEffects(ctx, "", 0)).To(Equal([]store.FiredEffect{c}))
		Expect(e.store.EndedEffects(ctx, "", later(), 0)).To(Equal([]store.FiredEffect{a, b}))
		Expect(e.store.EndedEffects(ctx, "", later(), 1)).To(Equal([]store.FiredEffect{a}))
		Expect(e.store.EndedEffects(ctx, "e-a", later(), 1)).To(Equal([]store.FiredEffect{b}))
		Expect(e.store.EndedEffects(ctx, "", e.clock.Now(), 0)).To(BeEmpty(), "they have just ended")
		Expect(e.store.ForgetEffect(ctx, "e-a")).To(Succeed())
		Expect(e.store.EndedEffects(ctx, "", later(), 0)).To(Equal([]store.FiredEffect{b}))
	})
}
