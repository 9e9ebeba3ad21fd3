package storetest

import (
	"encoding/json"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeRuns(e *env) {
	Describe("runs", Label("RUN-01"), func() {
		It("keep every field and the times of their start and end", func(ctx SpecContext) {
			id := e.thread(ctx)
			started := e.now()
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: store.RunRunning}})
			e.clock.Step(time.Second)
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: store.RunFailed, Reason: "ModelTimeout",
				Message: "it took too long", Steps: 2, State: json.RawMessage(`{"n":1}`), Usage: json.RawMessage(`{"in":5}`)}})
			Expect(e.store.Run(ctx, id, "r")).To(Equal(&store.Run{
				ID: "r", ThreadID: id, Agent: "helper", Status: store.RunFailed, Reason: "ModelTimeout", Message: "it took too long",
				Steps: 2, StartedAt: started, EndedAt: e.now(), State: json.RawMessage(`{"n":1}`), Usage: json.RawMessage(`{"in":5}`),
			}))
		})

		It("are listed newest first, and the newest is the default", func(ctx SpecContext) {
			id := e.thread(ctx)
			_, err := e.store.Run(ctx, id, "")
			Expect(err).To(MatchError(store.ErrNotFound))
			for _, run := range []string{"z", "a", "m"} {
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: run, Status: store.RunRunning}})
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: run, Status: store.RunSucceeded}})
			}
			runs, err := e.store.Runs(ctx, id, 2, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect([]string{runs[0].ID, runs[1].ID}).To(Equal([]string{"m", "a"}))
			Expect(runs).To(HaveLen(2))
			newest, err := e.store.Run(ctx, id, "")
			Expect(err).NotTo(HaveOccurred())
			Expect(newest.ID).To(Equal("m"))
			Expect(e.store.FirstRun(ctx, id)).To(HaveValue(And(HaveField("ID", "z"), HaveField("Status", store.RunSucceeded))))
			_, err = e.store.FirstRun(ctx, e.thread(ctx))
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Run(ctx, id, "none")
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.store.Runs(ctx, id, 2, 2)).To(HaveExactElements(HaveField("ID", "z")), "the next page")
			Expect(e.store.Runs(ctx, id, 2, 3)).To(BeEmpty())
			within := func(limit, offset int, most int64) (ids []string, more bool) {
				page, more, err := e.store.RunsWithin(ctx, id, limit, offset, most)
				Expect(err).NotTo(HaveOccurred())
				for _, r := range page {
					ids = append(ids, r.ID)
				}
				return ids, more
			}
			ids, more := within(2, 0, 1<<20)
			Expect(ids).To(Equal([]string{runs[0].ID, runs[1].ID}))
			Expect(more).To(BeTrue())
			ids, more = within(10, 1, 1)
			Expect(ids).To(Equal([]string{runs[1].ID}), "one at least")
			Expect(more).To(BeTrue())
			ids, more = within(2, 2, 1)
			Expect(ids).To(Equal([]string{"z"}))
			Expect(more).To(BeFalse())
			Expect(e.store.Runs(ctx, e.thread(ctx), 0, 0)).To(BeEmpty())
		})

		It("that ended with unfinished tasks are listed until those are finished, which changes nothing else", Label("THR-13"), func(ctx SpecContext) {
			id := e.thread(ctx)
			for _, run := range []string{"first", "second", "none"} {
				state := store.RunPostRunPending
				if run == "none" {
					state = nil
				}
				e.clock.Step(time.Second)
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: run, Status: store.RunSucceeded, State: state}})
			}
			later := e.now() + 1
			first, second := store.RunRef{ThreadID: id, RunID: "first"}, store.RunRef{ThreadID: id, RunID: "second"}
			Expect(e.store.PostRunPending(ctx, later, 0)).To(Equal([]store.RunRef{first, second}))
			Expect(e.store.PostRunPending(ctx, later, 1)).To(Equal([]store.RunRef{first}))
			before, err := e.store.Run(ctx, id, "second")
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.PostRunPending(ctx, before.EndedAt, 0)).To(Equal([]store.RunRef{first}), "only what ended before")
			was, err := e.store.Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())

			for range 2 {
				Expect(e.store.FinishPostRun(ctx, second)).To(Succeed(), "a repeat is not an error")
			}
			Expect(e.store.FinishPostRun(ctx, store.RunRef{ThreadID: "nowhere", RunID: "second"})).To(Succeed())
			Expect(e.store.PostRunPending(ctx, later, 0)).To(Equal([]store.RunRef{first}))
			before.State = nil
			Expect(e.store.Run(ctx, id, "second")).To(Equal(before))
			Expect(e.store.Thread(ctx, id)).To(Equal(was))
		})

		It("with unfinished tasks are not taken while their thread has no object", Label("THR-13", "THR-09"), func(ctx SpecContext) {
			retained, deleted, living := e.thread(ctx), e.thread(ctx), e.thread(ctx)
			for _, id := range []string{retained, deleted, living} {
				e.clock.Step(time.Second)
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunSucceeded, State: store.RunPostRunPending}})
			}
			e.apply(ctx, retained, &store.Retain{})
			Expect(e.store.MarkDeleted(ctx, deleted, deleted)).To(Succeed())
			e.clock.Step(time.Hour)
			take := func(id string) {
				GinkgoHelper()
				run := store.RunRef{ThreadID: id, RunID: "r"}
				Expect(e.store.LeftPostRun(ctx, time.Minute, 10)).To(Equal([]store.LeftRun{{RunRef: run, Namespace: "default"}}))
				Expect(e.store.TakeTasks(ctx, run, time.Minute)).To(BeTrue())
				Expect(e.store.TakeTasks(ctx, run, time.Minute)).To(BeFalse(), "it is taken")
			}
			take(living)
			e.apply(ctx, retained, &store.Adopt{ObjectUID: "new", Name: "n", Agent: "a"})
			take(retained)
			Expect(e.store.LeftPostRun(ctx, time.Minute, 10)).To(BeEmpty())
			e.clock.Step(time.Hour)
			Expect(e.store.LeftPostRun(ctx, time.Minute, 10)).To(HaveLen(2), "who took them is lost")
		})

		It("with unfinished tasks are listed so that namespaces take turns", Label("THR-13", "K8S-11"), func(ctx SpecContext) {
			var want []store.LeftRun
			for _, run := range []store.LeftRun{
				{RunRef: store.RunRef{ThreadID: "busy-1", RunID: "r"}, Namespace: "busy"}, {RunRef: store.RunRef{ThreadID: "busy-2", RunID: "r"}, Namespace: "busy"},
				{RunRef: store.RunRef{ThreadID: "busy-3", RunID: "r"}, Namespace: "busy"}, {RunRef: store.RunRef{ThreadID: "calm-1", RunID: "r"}, Namespace: "calm"},
				{RunRef: store.RunRef{ThreadID: "calm-2", RunID: "r"}, Namespace: "calm"},
			} {
				e.clock.Step(time.Second)
				_, _, err := e.store.CreateThread(ctx, store.Thread{ID: run.ThreadID, Namespace: run.Namespace, Agent: "a"})
				Expect(err).NotTo(HaveOccurred())
				e.apply(ctx, run.ThreadID, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunSucceeded, State: store.RunPostRunPending}})
				want = append(want, run)
			}
			Expect(e.store.LeftPostRun(ctx, time.Minute, 10)).To(BeEmpty(), "they may be under way")
			Expect(e.store.HandOver(ctx, []store.RunRef{want[4].RunRef})).To(Succeed())
			Expect(e.store.LeftPostRun(ctx, time.Minute, 10)).To(Equal(want[4:]))
			e.clock.Step(time.Hour)
			Expect(e.store.LeftPostRun(ctx, time.Minute, 10)).To(Equal([]store.LeftRun{want[0], want[3], want[1], want[4], want[2]}))
			Expect(e.store.LeftPostRun(ctx, time.Minute, 2)).To(Equal([]store.LeftRun{want[0], want[3]}))
		})

		It("that wait for a time are listed by that time while they wait", Label("RUN-11"), func(ctx SpecContext) {
			var ids []string
			for _, at := range []int64{30, 10, 20, 0} {
				id := e.thread(ctx)
				ids = append(ids, id)
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning, WakeAt: at}})
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunWaiting, WakeAt: at}})
				Expect(e.store.Run(ctx, id, "r")).To(HaveField("WakeAt", at))
			}
			mine := func() (out []store.Wake) {
				all, err := e.store.Wakes(ctx, 1000, 0)
				Expect(err).NotTo(HaveOccurred())
				for _, w := range all {
					if slices.Contains(ids, w.ThreadID) {
						out = append(out, w)
					}
				}
				return out
			}
			wake := func(i int, at int64) store.Wake {
				return store.Wake{RunRef: store.RunRef{ThreadID: ids[i], RunID: "r"}, At: at}
			}
			Expect(mine()).To(Equal([]store.Wake{wake(1, 10), wake(2, 20), wake(0, 30)}))
			first, err := e.store.Wakes(ctx, 1, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(first).To(HaveLen(1))
			Expect(e.store.Wakes(ctx, 1, 1)).NotTo(ContainElement(first[0]))
			e.apply(ctx, ids[1], &store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning, WakeAt: 10}})
			e.apply(ctx, ids[2], &store.PutRun{Run: store.Run{ID: "r", Status: store.RunStopped, WakeAt: 20}})
			Expect(mine()).To(Equal([]store.Wake{wake(0, 30)}), "a running or ended run waits for nothing")
			e.apply(ctx, ids[0], &store.Terminate{Reason: "x"})
			_, err = e.store.PurgeThread(ctx, ids[0])
			Expect(err).NotTo(HaveOccurred())
			Expect(mine()).To(BeEmpty())
		})

		It("log their start, waiting and end once each", func(ctx SpecContext) {
			id := e.thread(ctx)
			for _, status := range []store.RunStatus{store.RunRunning, store.RunRunning, store.RunWaiting, store.RunRunning, store.RunStopped, store.RunStopped} {
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: status}})
			}
			Expect(e.eventTypes(ctx, id)).To(Equal([]string{store.EventRunStarted, store.EventRunWaiting, store.EventRunEnded}))
		})
	})
}
