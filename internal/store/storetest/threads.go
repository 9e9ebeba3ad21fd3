package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeThreads(e *env) {
	Describe("threads", func() {
		It("keeps every field that the creator sets", Label("THR-02"), func(ctx SpecContext) {
			given := store.Thread{
				ID: "a", Namespace: "team", Name: "orders", Agent: "analyst", UserID: "u1", TaskID: "task-7", Title: "Orders",
				Arguments: json.RawMessage(`{"region":"north"}`), CreatedAt: 42,
			}
			stored, created, err := e.store.CreateThread(ctx, given)
			Expect(err).NotTo(HaveOccurred())
			Expect(created).To(BeTrue())
			given.RootID, given.LastActivityAt = "a", e.now()
			given.OriginAgent, given.DeclaredAgent = "analyst", "analyst"
			Expect(*stored).To(Equal(given))
			Expect(e.info(ctx, "a")).To(Equal(stored))
		})

		It("returns the stored thread to a second create, and applies nothing", Label("THR-03"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("m1", "first"))
			stored, created, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "other", Agent: "other"}, queued("m2", "second"))
			Expect(err).NotTo(HaveOccurred())
			Expect(created).To(BeFalse())
			Expect(stored.Agent).To(Equal("helper"))
			Expect(e.inbox(ctx, id)).To(HaveLen(1))
		})

		It("creates a thread with its files and inbox items at version 0", Label("THR-03", "THR-11"), func(ctx SpecContext) {
			id := e.thread(ctx, putFile("/in/a.csv", 3), queued("m1", "first"))
			t := e.info(ctx, id)
			Expect(t.Version).To(BeZero())
			Expect(t.Queued).To(Equal(int64(1)))
			_, err := e.store.File(ctx, id, "/in/a.csv")
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{id}))
		})

		It("creates nothing when one of the first ops fails", func(ctx SpecContext) {
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: "x", Namespace: "n", Agent: "a"}, &store.RemoveFile{Path: "/none"})
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Thread(ctx, "x")
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("reports a missing thread as not found, for every call", Label("THR-18"), func(ctx SpecContext) {
			_, err := e.store.Thread(ctx, "none")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Messages(ctx, "none", store.MessageQuery{})
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Message(ctx, "none", "m")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Inbox(ctx, "none")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Events(ctx, "none", 0, 0)
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Run(ctx, "none", "")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Acquire(ctx, "none", "me", time.Second)
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.store.Apply(ctx, "none", nil, &store.AppendMessage{Message: message("hi")})).To(MatchError(store.ErrNotFound))
		})

		It("derives a child's lineage from its parent", func(ctx SpecContext) {
			root := e.thread(ctx)
			child := store.Thread{ID: "c", Namespace: "default", Agent: "auditor", ParentID: root, Reference: "sub-1",
				RegistryStatus: "running", Child: &store.Child{Name: "auditor", Blocking: true, ToolCallID: "call-1", ParentCommunication: "implicit"}}
			stored, _, err := e.store.CreateThread(ctx, child)
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.RootID).To(Equal(root))
			Expect(stored.Depth).To(Equal(1))
			Expect(stored.Child).To(Equal(child.Child))
			e.clock.Step(time.Second)
			grand, _, err := e.store.CreateThread(ctx, store.Thread{ID: "g", Namespace: "default", Agent: "a", ParentID: "c"})
			Expect(err).NotTo(HaveOccurred())
			Expect(grand.RootID).To(Equal(root))
			Expect(grand.Depth).To(Equal(2))
			_, _, err = e.store.CreateThread(ctx, store.Thread{ID: "b", Namespace: "default", Agent: "a", ParentID: root})
			Expect(err).NotTo(HaveOccurred())

			children, err := e.store.Children(ctx, root)
			Expect(err).NotTo(HaveOccurred())
			Expect(ids(children)).To(Equal([]string{"c", "b"}))
			Expect(e.store.Children(ctx, "b")).To(BeEmpty())
			_, _, err = e.store.CreateThread(ctx, store.Thread{ID: "o", Namespace: "default", Agent: "a", ParentID: "none"})
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("creates the child of a terminated parent as terminated", Label("SUB-08"), func(ctx SpecContext) {
			parent := e.thread(ctx)
			e.apply(ctx, parent, &store.Terminate{Reason: "TerminatedByRequest"})
			child, created, err := e.store.CreateThread(ctx, store.Thread{
				ID: "late", Namespace: "default", Agent: "a", ParentID: parent, Reference: "late", RegistryStatus: "pending", Child: &store.Child{Name: "helper"},
			}, queued("m", "go"))
			Expect(err).NotTo(HaveOccurred())
			Expect(created).To(BeTrue())
			Expect(child.TerminatedAt).To(Equal(e.now()))
			Expect(child.TerminatedReason).To(Equal("ParentTerminated"))
			Expect(child.RegistryStatus).To(Equal("terminated"), "it never runs")
			Expect(child.Queued).To(BeZero())
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
		})

		It("creates no child of a parent that is being deleted, until its data is retained", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
			parent, ended := e.thread(ctx), e.thread(ctx)
			e.apply(ctx, ended, &store.Terminate{Reason: "TerminatedByRequest"})
			create := func(id, parent string) (*store.Thread, error) {
				child, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "default", Agent: "a", ParentID: parent}, queued("m", "go"))
				return child, err
			}
			for _, id := range []string{parent, ended} {
				Expect(e.store.MarkDeleted(ctx, id, id)).To(Succeed())
			}
			_, err := create("late", parent)
			Expect(err).To(MatchError(store.ErrObjectDeleted))
			Expect(create("never", ended)).To(HaveField("TerminatedReason", "ParentTerminated"), "its parent ended before, whatever becomes of that one's data")
			e.apply(ctx, parent, &store.Retain{})
			Expect(create("late", parent)).To(And(HaveField("TerminatedAt", BeZero()), HaveField("Queued", BeEquivalentTo(1))))

			purging := e.thread(ctx)
			e.apply(ctx, purging, &store.Terminate{Reason: store.ReasonPurged}) // as its purge begins
			_, err = create("later", purging)
			Expect(err).To(MatchError(store.ErrObjectDeleted))
		})

		It("lists the threads of a namespace by newest activity, in pages", func(ctx SpecContext) {
			var all []string
			for i := range 6 {
				e.clock.Step(400 * time.Millisecond)
				all = append(all, e.threadIn(ctx, fmt.Sprint("ns-", i%2)))
			}
			e.clock.Step(time.Millisecond)
			e.say(ctx, all[1], "active again")

			list := func(q store.ThreadQuery) []string {
				GinkgoHelper()
				threads, _, err := e.store.Threads(ctx, q)
				Expect(err).NotTo(HaveOccurred())
				return ids(threads)
			}
			Expect(list(store.ThreadQuery{})).To(Equal([]string{all[1], all[5], all[4], all[3], all[2], all[0]}))
			Expect(list(store.ThreadQuery{Limit: 2, Offset: 1})).To(Equal([]string{all[5], all[4]}))
			Expect(list(store.ThreadQuery{Namespace: "ns-1"})).To(Equal([]string{all[1], all[5], all[3]}))
			Expect(list(store.ThreadQuery{Namespace: "ns-1", Limit: 1, Offset: 2})).To(Equal([]string{all[3]}))
			Expect(list(store.ThreadQuery{Namespace: "none"})).To(BeEmpty())
		})

		It("terminates no thread for which a certain item waits", Label("SUB-02"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("m1", "waits"))
			end := &store.Terminate{Reason: "SessionEnded", Unless: func(item store.InboxItem) bool { return item.Kind == store.InboxMessage }}
			e.apply(ctx, id, end)
			Expect(end.Left).To(BeTrue())
			Expect(e.info(ctx, id).TerminatedAt).To(BeZero())
			items := e.inbox(ctx, id)
			Expect(items).To(HaveLen(1))
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{items[0].Seq}})
			e.apply(ctx, id, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}})
			e.apply(ctx, id, end)
			Expect(end.Left).To(BeFalse())
			Expect(e.info(ctx, id).TerminatedReason).To(Equal("SessionEnded"))
			Expect(e.inbox(ctx, id)).To(BeEmpty())
		})

		It("terminates once, drops queued items and refuses new ones", Label("THR-05"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("m1", "waits"))
			e.say(ctx, id, "said")
			end := &store.Terminate{Reason: "TerminatedByRequest"}
			e.apply(ctx, id, end)
			Expect(end.Already).To(BeFalse())
			at := e.now()
			e.clock.Step(time.Minute)
			again := &store.Terminate{Reason: "ParentTerminated"}
			e.apply(ctx, id, again)
			Expect(again.Already).To(BeTrue())

			t := e.info(ctx, id)
			Expect(t.TerminatedAt).To(Equal(at))
			Expect(t.TerminatedReason).To(Equal("TerminatedByRequest"))
			Expect(t.Queued).To(BeZero())
			Expect(e.inbox(ctx, id)).To(BeEmpty())
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			Expect(e.store.Apply(ctx, id, nil, queued("m2", "late"))).To(MatchError(store.ErrTerminated))
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"said"}))
			last := e.events(ctx, id)[2]
			Expect(last.Type).To(Equal(store.EventTerminated))
			Expect(string(last.Data)).To(MatchJSON(`{"reason":"TerminatedByRequest"}`))
		})
	})
}

func ids(threads []store.Thread) []string {
	out := []string{}
	for _, t := range threads {
		out = append(out, t.ID)
	}
	return out
}

func describeVersions(e *env) {
	Describe("versions", Label("THR-11"), func() {
		It("grow by one with each commit that changes something", func(ctx SpecContext) {
			id := e.thread(ctx)
			version := func() int64 { return e.info(ctx, id).Version }
			Expect(version()).To(Equal(int64(0)))
			m := message("one")
			m.ID = "m1"
			e.apply(ctx, id, &store.AppendMessage{Message: m}, &store.PutValue{Key: "k", Value: json.RawMessage(`1`)}, queued("q", "two"))
			Expect(version()).To(Equal(int64(1)))
			e.apply(ctx, id, &store.AppendEvent{Event: store.Event{Type: "event:progress"}})
			Expect(version()).To(Equal(int64(2)))
			again := message("other")
			again.ID = "m1"
			e.apply(ctx, id, &store.AppendMessage{Message: again}, &store.PutValue{Key: "missing"}, &store.Dequeue{Seqs: []int64{999}},
				&store.DeleteMessage{ID: "none"}, &store.UpdateThread{})
			Expect(version()).To(Equal(int64(2)))
			e.apply(ctx, id)
			Expect(version()).To(Equal(int64(2)))
		})

		It("refuse an update that expects an older version", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.UpdateThread{Title: ptr("A"), ExpectVersion: ptr(int64(0))})
			err := e.store.Apply(ctx, id, nil, &store.AppendMessage{Message: message("lost")}, &store.UpdateThread{Title: ptr("B"), ExpectVersion: ptr(int64(0))})
			Expect(err).To(MatchError(store.ErrConflict))
			t := e.info(ctx, id)
			Expect(t.Title).To(Equal("A"))
			Expect(t.Messages).To(BeZero())
			e.apply(ctx, id, &store.UpdateThread{Title: ptr("other"), RegistryStatus: ptr("completed"), ExpectVersion: ptr(int64(1))})
			t = e.info(ctx, id)
			Expect([]string{t.Title, t.RegistryStatus}).To(Equal([]string{"other", "completed"}))
			Expect(t.Version).To(Equal(int64(2)))
		})

		It("grow for both threads when one writes into the other's inbox", func(ctx SpecContext) {
			parent, child := e.thread(ctx), e.thread(ctx)
			op := queued("r", "done")
			op.To = parent
			e.apply(ctx, child, op, &store.AppendMessage{Message: message("answer")})
			Expect(e.info(ctx, parent).Version).To(Equal(int64(1)))
			Expect(e.info(ctx, child).Version).To(Equal(int64(1)))
		})
	})
}
