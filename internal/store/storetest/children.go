package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeChildren(e *env) {
	Describe("tasks of children", Label("SUB-03", "K8S-07"), func() {
		task := func(parent string, n int, edit ...func(*store.ChildTask)) store.ChildTask {
			t := store.ChildTask{ID: fmt.Sprint(parent, "-", n), ParentID: parent, Reference: fmt.Sprint("child-", n), Namespace: "default", Kind: "helper", Agent: "worker",
				Task: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
			for _, f := range edit {
				f(&t)
			}
			return t
		}
		child := func(ctx SpecContext, t store.ChildTask) string {
			GinkgoHelper()
			e.made++
			id := fmt.Sprintf("00000000-0000-4000-8000-%012d", e.made)
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: t.Namespace, Name: t.Reference, Agent: t.Agent, ParentID: t.ParentID,
				Reference: t.Reference, Child: &store.Child{Name: t.Kind}})
			Expect(err).NotTo(HaveOccurred())
			return id
		}

		It("are kept once, with a digest that says nothing of them", func(ctx SpecContext) {
			parent := e.thread(ctx)
			first, err := e.store.ReserveChild(ctx, task(parent, 1), nil)
			Expect(err).NotTo(HaveOccurred())
			again, err := e.store.ReserveChild(ctx, task(parent, 1, func(t *store.ChildTask) { t.Task = json.RawMessage(`{"n":9}`) }), nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(first))
			kept, digest, err := e.store.ChildTask(ctx, parent+"-1")
			Expect(err).NotTo(HaveOccurred())
			Expect(digest).To(Equal(first))
			Expect(kept).To(HaveValue(Equal(task(parent, 1))))
			Expect(Unset(*kept)).To(BeEmpty())
			same, err := e.store.ReserveChild(ctx, task(parent, 2, func(t *store.ChildTask) { t.Task = kept.Task }), nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(same).NotTo(Equal(first), "each digest has a key of its own")
			_, _, err = e.store.ChildTask(ctx, "none")
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("count while their children live, and no call exceeds a limit", func(ctx SpecContext) {
			parent := e.thread(ctx)
			for scope, limits := range map[store.ChildScope][]store.ChildLimit{
				store.ChildrenOfParent: {{Scope: store.ChildrenOfParent, Most: 3}}, store.ChildrenOfKind: {{Scope: store.ChildrenOfParent, Most: 9}, {Scope: store.ChildrenOfKind, Most: 3}},
				store.ChildrenOfAgent: {{Scope: store.ChildrenOfAgent, Most: 3}}, store.ChildrenOfNamespace: {{Scope: store.ChildrenOfNamespace, Most: 3}},
			} {
				var granted atomic.Int32
				var group sync.WaitGroup
				for i := range 20 {
					group.Go(func() {
						defer GinkgoRecover()
						_, err := e.store.ReserveChild(ctx, task(parent, i), limits)
						var over *store.ChildLimitError
						if err == nil {
							granted.Add(1)
						} else {
							Expect(errors.As(err, &over)).To(BeTrue(), "%v", err)
							Expect(*over).To(Equal(store.ChildLimitError{ChildLimit: store.ChildLimit{Scope: scope, Most: 3}, Living: 3}))
						}
					})
				}
				group.Wait()
				Expect(granted.Load()).To(BeEquivalentTo(3), string(scope))
				Expect(e.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"helper": 3}))
				for i := range 20 {
					Expect(e.store.ReleaseChild(ctx, parent, fmt.Sprint("child-", i))).To(Succeed())
				}
				Expect(e.store.LivingChildren(ctx, "default", parent)).To(BeEmpty())
				parent = e.thread(ctx)
			}
		})

		It("are not needed by a thread that becomes a child with all below it", Label("SUB-01", "ENV-04"), func(ctx SpecContext) {
			root, parent, adopted := e.thread(ctx), "", e.thread(ctx)
			parent = child(ctx, task(root, 1))
			below := child(ctx, task(adopted, 2))
			attach := func(id, to, reference string) error {
				return e.store.Apply(ctx, id, nil, &store.Attach{ParentID: to, Reference: reference, Agent: "helper", Child: store.Child{Name: "kind"}, RegistryStatus: func(*store.Run) string { return "pending" }})
			}
			Expect(attach(adopted, below, "x")).To(MatchError(store.ErrCycle))
			Expect(attach(adopted, adopted, "x")).To(MatchError(store.ErrCycle))
			Expect(attach(below, parent, "x")).To(MatchError(store.ErrHasParent))
			Expect(attach(adopted, "none", "x")).To(MatchError(store.ErrNotFound))
			Expect(attach(adopted, e.threadIn(ctx, "other"), "x")).To(MatchError(store.ErrCycle))
			Expect(e.store.Apply(ctx, adopted, nil, &store.ExpectRoot{}, &store.UpdateThread{Title: ptr("still a root")})).To(Succeed())
			for range 2 {
				Expect(attach(adopted, parent, "ref")).To(Succeed())
			}
			for _, id := range []string{adopted, parent} {
				Expect(e.store.Apply(ctx, id, nil, &store.ExpectRoot{}, &store.UpdateThread{Title: ptr("a child")})).To(MatchError(store.ErrHasParent))
			}
			Expect(*e.info(ctx, adopted)).To(And(HaveField("ParentID", parent), HaveField("Reference", "ref"), HaveField("RootID", root), HaveField("Depth", 2),
				HaveField("RegistryStatus", "pending"), HaveField("Child", HaveValue(HaveField("Name", "kind")))))
			Expect(*e.info(ctx, below)).To(And(HaveField("RootID", root), HaveField("Depth", 3)))
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"kind": 1}))
			Expect(attach(adopted, root, "other")).To(MatchError(store.ErrHasParent))
			ended := e.thread(ctx)
			e.apply(ctx, ended, &store.Terminate{})
			Expect(attach(ended, parent, "x")).To(MatchError(store.ErrTerminated))
			deleted := e.thread(ctx)
			Expect(e.store.MarkDeleted(ctx, deleted, deleted)).To(Succeed())
			Expect(attach(deleted, parent, "x")).To(MatchError(store.ErrTerminated))
			Expect(attach(e.thread(ctx), deleted, "x")).To(MatchError(store.ErrTerminated))
			withEnv := e.thread(ctx)
			e.apply(ctx, withEnv, &store.SetEnv{Vars: []store.EnvVar{{Name: "A", Value: []byte("a"), KeyID: 7}}})
			Expect(attach(withEnv, parent, "x")).To(MatchError(store.ErrHasEnv))
			e.apply(ctx, root, &store.SetEnv{Vars: []store.EnvVar{{Name: "B", Value: []byte("b"), KeyID: 7}}})
			_, err := e.store.PurgeThread(ctx, adopted)
			Expect(err).NotTo(HaveOccurred())
		})

		It("are not needed by what is below a retained child, which becomes the child's tree when that is adopted", Label("THR-09", "SUB-01"), func(ctx SpecContext) {
			root := e.thread(ctx)
			kept := child(ctx, task(root, 1))
			below := child(ctx, task(kept, 1))
			deeper, beside := child(ctx, task(below, 1)), child(ctx, task(root, 2))
			e.apply(ctx, below, &store.SetEnv{Vars: []store.EnvVar{{Name: "A", Value: []byte("sealed"), KeyID: 7}}})
			for _, id := range []string{below, deeper} {
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: store.RunSucceeded, EndedAt: e.now(), Usage: json.RawMessage(`{"inputTokens":5}`)}})
				Expect(e.store.Usage(ctx, store.UsageQuery{ThreadID: id})).To(HaveField("InputTokens", BeEquivalentTo(5)))
			}
			e.apply(ctx, kept, &store.Retain{})
			Expect(e.store.AdoptBelow(ctx, kept, 1)).To(Equal(1))
			Expect(e.store.AdoptBelow(ctx, kept, 10)).To(Equal(1), "what was interrupted goes on")
			Expect(e.store.AdoptBelow(ctx, kept, 10)).To(BeZero())
			e.apply(ctx, kept, &store.Adopt{ObjectUID: "new", Name: "kept", Agent: "helper"})
			for depth, id := range []string{kept, below, deeper} {
				Expect(*e.info(ctx, id)).To(And(HaveField("RootID", kept), HaveField("Depth", depth), HaveField("EnvRoot", root)), id)
			}
			Expect(*e.info(ctx, beside)).To(And(HaveField("RootID", root), HaveField("EnvRoot", "")))
			Expect(*e.info(ctx, child(ctx, task(below, 2)))).To(And(HaveField("RootID", kept), HaveField("Depth", 2), HaveField("EnvRoot", root)))
			Expect(e.store.EnvNotUnder(ctx, 8, nil, 10)).To(ContainElement(And(HaveField("ThreadID", below), HaveField("RootID", root))))
			Expect(e.store.Apply(ctx, kept, nil, &store.Attach{ParentID: deeper, Reference: "x", Agent: "helper", RegistryStatus: func(*store.Run) string { return "" }})).
				To(MatchError(store.ErrCycle))
			Expect(e.store.AdoptBelow(ctx, "none", 10)).To(BeZero())

			By("keeping the root of the variables when it is adopted again")
			e.apply(ctx, below, &store.Retain{})
			Expect(e.store.AdoptBelow(ctx, below, 10)).To(Equal(2))
			e.apply(ctx, below, &store.Adopt{ObjectUID: "newer", Name: "below", Agent: "helper"})
			for depth, id := range []string{below, deeper} {
				Expect(*e.info(ctx, id)).To(And(HaveField("RootID", below), HaveField("Depth", depth), HaveField("EnvRoot", root)), id)
			}

			By("folding what each used when its last root is purged")
			for _, id := range []string{beside, root, deeper, below, kept} {
				_, err := e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			for _, id := range []string{below, deeper} {
				Expect(e.store.Usage(ctx, store.UsageQuery{ThreadID: id})).To(HaveField("InputTokens", BeZero()), "the row of the thread is gone")
			}
		})

		It("are told apart by what their children still do", Label("RUN-04", "SUB-08"), func(ctx SpecContext) {
			parent := e.thread(ctx)
			made := make([]string, 8)
			for i := range made {
				made[i] = child(ctx, task(parent, i))
				e.clock.Step(time.Second)
			}
			fresh, queuedFor, runs, waits, rests, ended, retained, removed := made[0], made[1], made[2], made[3], made[4], made[5], made[6], made[7]
			for id, status := range map[string]store.RunStatus{queuedFor: store.RunSucceeded, runs: store.RunRunning, waits: store.RunWaiting, rests: store.RunSucceeded} {
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "earlier", Status: store.RunSucceeded}}, &store.PutRun{Run: store.Run{ID: "newest", Status: status}})
			}
			e.apply(ctx, queuedFor, queued("m", "more"))
			below, lost := child(ctx, task(ended, 1)), child(ctx, task(ended, 2))
			deeper := child(ctx, task(lost, 1))
			for _, id := range []string{ended, lost} {
				e.apply(ctx, id, &store.Terminate{})
			}
			e.apply(ctx, retained, &store.Retain{})
			_, err := e.store.PurgeThread(ctx, removed)
			Expect(err).NotTo(HaveOccurred())

			Expect(e.store.UnfinishedChildren(ctx, parent)).To(HaveExactElements(fresh, queuedFor, runs, waits, rests))
			Expect(e.store.UnfinishedChildren(ctx, "none")).To(BeEmpty())
			Expect(e.store.UnfinishedBelow(ctx, parent)).To(ConsistOf(fresh, queuedFor, runs, waits, rests, below, deeper))
			Expect(e.store.UnfinishedBelow(ctx, ended)).To(ConsistOf(below, deeper))
			Expect(e.store.UnfinishedBelow(ctx, "none")).To(BeEmpty())
			working, err := e.store.WorkingChildren(ctx, parent)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(working)).To(HaveExactElements(fresh, queuedFor, runs, waits))
			Expect(e.store.MarkDeleted(ctx, runs, runs)).To(Succeed())
			working, err = e.store.WorkingChildren(ctx, parent)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(working)).To(HaveExactElements(fresh, queuedFor, waits), "no replica works on one that is being deleted")
			since, err := e.store.ChildrenSince(ctx, parent, e.info(ctx, waits).CreatedAt)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(since)).To(HaveExactElements(waits, rests, ended, retained))
			present, err := e.store.Children(ctx, parent)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(present)).To(HaveExactElements(fresh, queuedFor, runs, waits, rests, ended))
			e.apply(ctx, runs, &store.UpdateThread{RegistryStatus: ptr("running")})
			references := []string{"child-2", "child-5", "child-6", "child-7", "none"}
			for i := range 100 {
				references = append(references, fmt.Sprint("more-", i))
			}
			Expect(e.store.ChildStates(ctx, parent, append(references, "child-4"))).To(Equal(map[string]store.ChildState{
				"child-2": {ThreadID: runs, RegistryStatus: "running"}, "child-4": {ThreadID: rests}, "child-5": {ThreadID: ended}}))
			Expect(e.store.ChildStates(ctx, parent, nil)).To(BeEmpty())
		})

		It("count for a child whose reference an earlier one had, whatever becomes of what is retained of that", func(ctx SpecContext) {
			parent := e.thread(ctx)
			earlier := child(ctx, task(parent, 1))
			e.apply(ctx, earlier, &store.Retain{})
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(BeEmpty())
			Expect(e.store.Child(ctx, parent, "child-1")).To(HaveField("ID", earlier))
			now := child(ctx, task(parent, 1))
			Expect(e.store.Child(ctx, parent, "child-1")).To(HaveField("ID", now))
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"helper": 1}))
			_, err := e.store.PurgeThread(ctx, earlier)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"helper": 1}))
			_, err = e.store.ReserveChild(ctx, task(parent, 2), []store.ChildLimit{{Scope: store.ChildrenOfParent, Most: 1}})
			Expect(err).To(HaveOccurred())
			_, err = e.store.PurgeThread(ctx, now)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(BeEmpty())
		})

		It("end with their child, or before there is one", func(ctx SpecContext) {
			parent := e.thread(ctx)
			for i := range 5 {
				_, err := e.store.ReserveChild(ctx, task(parent, i), nil)
				Expect(err).NotTo(HaveOccurred())
			}
			ended, purged, retained := child(ctx, task(parent, 0)), child(ctx, task(parent, 1)), child(ctx, task(parent, 2))
			declared := child(ctx, task(parent, 7, func(t *store.ChildTask) { t.Kind = "other" }))
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"helper": 5, "other": 1}))
			Expect(e.store.Child(ctx, parent, "child-7")).To(HaveField("ID", declared))
			_, err := e.store.Child(ctx, parent, "child-3")
			Expect(err).To(MatchError(store.ErrNotFound))
			e.clock.Step(time.Minute)
			Expect(e.store.UnmadeChildren(ctx, parent, e.now())).To(ConsistOf("child-3", "child-4"))
			Expect(e.store.UnmadeChildren(ctx, parent, e.now()-time.Hour.Microseconds())).To(BeEmpty())
			e.apply(ctx, ended, &store.Terminate{})
			e.apply(ctx, retained, &store.Retain{})
			Expect(e.store.MarkDeleted(ctx, purged, purged)).To(Succeed())
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"helper": 2, "other": 1}), "nor does one count whose data waits to be purged")
			_, err = e.store.PurgeThread(ctx, purged)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"helper": 2, "other": 1}))
			_, _, err = e.store.ChildTask(ctx, parent+"-1")
			Expect(err).To(MatchError(store.ErrNotFound), "a task goes with its child")
			_, err = e.store.ReserveChild(ctx, task(parent, 1), nil)
			Expect(err).To(MatchError(store.ErrChildPurged), "and is not given again")
			_, err = e.store.PurgeThread(ctx, parent)
			Expect(err).NotTo(HaveOccurred())
			_, _, err = e.store.ChildTask(ctx, parent+"-3")
			Expect(err).To(MatchError(store.ErrNotFound), "or its parent")
			Expect(e.store.LivingChildren(ctx, "default", parent)).To(BeEmpty())
		})
	})
}
