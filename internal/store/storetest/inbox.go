package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeInbox(e *env) {
	Describe("the inbox", Label("MSG-05"), func() {
		It("keeps items in order until they are taken", func(ctx SpecContext) {
			id := e.thread(ctx)
			for i := range 4 {
				e.apply(ctx, id, queued(fmt.Sprint("m", i), fmt.Sprint(i)))
			}
			e.apply(ctx, id, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: json.RawMessage(`{"name":"t"}`), CreatedAt: 5}})
			items := e.inbox(ctx, id)
			Expect(items).To(HaveLen(5))
			for i := 1; i < len(items); i++ {
				Expect(items[i].Seq).To(BeNumerically(">", items[i-1].Seq))
			}
			Expect(items[0].CreatedAt).To(Equal(e.now()))
			Expect(items[4].CreatedAt).To(Equal(int64(5)))
			Expect(items[4].Kind).To(Equal(store.InboxTool))
			Expect(string(items[4].Payload)).To(MatchJSON(`{"name":"t"}`))
			Expect(e.info(ctx, id).Queued).To(Equal(int64(4)))

			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{items[1].Seq, items[4].Seq, 12345}})
			left := e.inbox(ctx, id)
			Expect(left).To(Equal([]store.InboxItem{items[0], items[2], items[3]}))
			Expect(e.info(ctx, id).Queued).To(Equal(int64(3)))
		})

		It("finds an item by its key while it waits", func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			for _, key := range []string{"a", "b", "c"} {
				op := queued("m-"+key, key)
				op.Item.Key = key
				e.apply(ctx, id, op)
			}
			items := e.inbox(ctx, id)
			Expect(e.store.InboxItem(ctx, id, "b")).To(Equal(&items[1]))
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{items[1].Seq}})
			for thread, key := range map[string]string{id: "b", other: "a", "none": "a"} {
				_, err := e.store.InboxItem(ctx, thread, key)
				Expect(err).To(MatchError(store.ErrNotFound), thread)
			}
			Expect(e.store.InboxItem(ctx, id, "c")).To(Equal(&items[2]))
		})

		It("holds back items until a time, and does not hold back the others", Label("HOK-01"), func(ctx SpecContext) {
			id := e.thread(ctx)
			wakes := func() (at []int64) {
				all, err := e.store.Wakes(ctx, 1000, 0)
				Expect(err).NotTo(HaveOccurred())
				for _, w := range all {
					if w.ThreadID == id {
						at = append(at, w.At)
					}
				}
				return at
			}
			runnable := func() []string {
				ids, err := e.store.Runnable(ctx, 100000)
				Expect(err).NotTo(HaveOccurred())
				return ids
			}
			for range 2 {
				e.apply(ctx, id, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxHook, Payload: json.RawMessage(`{"hook":"h"}`)}})
			}
			first, second := e.inbox(ctx, id)[0].Seq, e.inbox(ctx, id)[1].Seq
			e.apply(ctx, id, &store.Delay{Seq: first, Until: 20, Tries: 1}, &store.Delay{Seq: 12345, Until: 1})
			Expect(e.inbox(ctx, id)[0]).To(And(HaveField("DelayedUntil", int64(20)), HaveField("Tries", 1), HaveField("Payload", MatchJSON(`{"hook":"h"}`))))
			Expect(wakes()).To(Equal([]int64{20}))
			Expect(runnable()).To(ContainElement(id), "another waits")
			e.apply(ctx, id, &store.Delay{Seq: second, Until: 30})
			e.apply(ctx, id, &store.Delay{Seq: first, Until: 40, Tries: 2})
			Expect(e.inbox(ctx, id)[0]).To(And(HaveField("Seq", first), HaveField("DelayedUntil", int64(40)), HaveField("Tries", 2)))
			Expect(wakes()).To(Equal([]int64{30, 40}))
			Expect(runnable()).NotTo(ContainElement(id))
			e.apply(ctx, id, queued("m", "hi"))
			Expect(runnable()).To(ContainElement(id))
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{e.inbox(ctx, id)[2].Seq}})
			Expect(runnable()).NotTo(ContainElement(id))
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{first}})
			Expect(wakes()).To(Equal([]int64{30}))
			run := &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: store.RunRunning}}
			e.apply(ctx, id, run)
			Expect(wakes()).To(BeEmpty(), "the holder of the run handles them")
			run.Run.Status = store.RunWaiting
			e.apply(ctx, id, run)
			Expect(wakes()).To(Equal([]int64{30}))
			e.apply(ctx, id, queued("n", "hi"))
			e.apply(ctx, id, &store.Retain{})
			Expect(wakes()).To(BeEmpty(), "a thread without an object does nothing")
			Expect(e.inbox(ctx, id)).To(HaveLen(2))
		})

		It("ends the delays of what a run has left with the run, and not those of hooks", Label("MSG-08"), func(ctx SpecContext) {
			for name, before := range map[string]store.RunStatus{"parked": store.RunWaiting, "in progress": store.RunRunning} {
				id := e.thread(ctx)
				run := &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: before}}
				e.apply(ctx, id, run, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxHook, Payload: json.RawMessage(`{"hook":"h"}`)}}, queued("m", "hi"))
				hook, message := e.inbox(ctx, id)[0].Seq, e.inbox(ctx, id)[1].Seq
				e.apply(ctx, id, &store.Delay{Seq: hook, Until: e.now() + 20, Tries: 1}, &store.Delay{Seq: message, Until: e.now() + 20})
				run.Run.Status = store.RunStopped
				e.apply(ctx, id, run, &store.Park{})
				Expect(e.inbox(ctx, id)).To(HaveExactElements(HaveField("DelayedUntil", Not(BeZero())), HaveField("DelayedUntil", int64(0))), name)
				Expect(e.store.Runnable(ctx, 100000)).NotTo(ContainElement(id), name)
				e.apply(ctx, id, &store.Continue{})
				Expect(e.store.Runnable(ctx, 100000)).To(ContainElement(id), name)
				e.apply(ctx, id, &store.Dequeue{Seqs: []int64{message}})
				Expect(e.store.Runnable(ctx, 100000)).NotTo(ContainElement(id), name)
			}
		})

		It("ends the delays of what came to a run that waited when it goes on", Label("MSG-08"), func(ctx SpecContext) {
			id := e.thread(ctx)
			run := &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: store.RunWaiting}}
			e.apply(ctx, id, run, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxHook, Payload: json.RawMessage(`{"hook":"h"}`)}},
				&store.Enqueue{Item: store.InboxItem{Kind: store.InboxChildResult, Payload: json.RawMessage(`{"reference":"c"}`)}})
			for _, item := range e.inbox(ctx, id) {
				e.apply(ctx, id, &store.Delay{Seq: item.Seq, Until: e.now() + 20})
			}
			run.Run.Steps++
			e.apply(ctx, id, run)
			Expect(e.inbox(ctx, id)).To(HaveEach(HaveField("DelayedUntil", Not(BeZero()))), "it still waits")
			run.Run.Status = store.RunRunning
			e.apply(ctx, id, run)
			Expect(e.inbox(ctx, id)).To(HaveExactElements(HaveField("DelayedUntil", Not(BeZero())), HaveField("DelayedUntil", int64(0))))
			run.Run.Status = store.RunStopped
			e.apply(ctx, id, run)
			Expect(e.store.Runnable(ctx, 100000)).To(ContainElement(id))
		})

		It("refuses items for an idle thread while it is busy", Label("RUN-09"), func(ctx SpecContext) {
			id := e.thread(ctx)
			try := func(key string, change func(*store.Enqueue)) error {
				op := queued(key, key)
				op.Item.Key = key
				change(op)
				return e.store.Apply(ctx, id, nil, op)
			}
			noRun := func(op *store.Enqueue) { op.IfNoRun = true }
			idle := func(op *store.Enqueue) { op.IfIdle = true }
			Expect(try("a", idle)).To(Succeed())
			Expect(try("b", idle)).To(MatchError(store.ErrRunning), "a message waits to start a run")
			Expect(try("c", noRun)).To(Succeed())
			for _, status := range []store.RunStatus{store.RunRunning, store.RunWaiting} {
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: status}})
				Expect(try("d", noRun)).To(MatchError(store.ErrRunning))
				Expect(try("d", idle)).To(MatchError(store.ErrRunning))
				Expect(try("a", idle)).To(Succeed(), "a repeat")
			}
			Expect(e.inbox(ctx, id)).To(HaveLen(2))
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunStopped}}, &store.Park{})
			Expect(try("d", idle)).To(Succeed(), "a parked thread starts nothing")
		})

		It("drops a key that was ever used, also after the item was taken", Label("MSG-10"), func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			first := queued("m", "once")
			first.Item.Key = "k"
			e.apply(ctx, id, first)
			Expect(first.Existed).To(BeFalse())
			again := func(to string) *store.Enqueue {
				op := queued("m", "once")
				op.Item.Key = "k"
				e.apply(ctx, to, op)
				return op
			}
			repeat := again(id)
			Expect(repeat.Existed).To(BeTrue())
			Expect(repeat.Seq).To(Equal(first.Seq))
			Expect(e.inbox(ctx, id)).To(HaveLen(1))
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{first.Seq}})
			Expect(again(id).Existed).To(BeTrue())
			Expect(e.inbox(ctx, id)).To(BeEmpty())
			Expect(again(other).Existed).To(BeFalse())
		})

		It("drops a key that was used before the thread ended", Label("MSG-10", "THR-05"), func(ctx SpecContext) {
			ended, deleted, sender := e.thread(ctx), e.thread(ctx), e.thread(ctx)
			item := func(key, to string) *store.Enqueue {
				op := queued("m-"+key, key)
				op.Item.Key, op.To = key, to
				return op
			}
			for _, id := range []string{ended, deleted} {
				e.apply(ctx, id, item("k", ""))
			}
			e.apply(ctx, ended, &store.Terminate{Reason: "x"})
			Expect(e.store.MarkDeleted(ctx, e.info(ctx, deleted).OwnerUID(), deleted)).To(Succeed())
			for _, id := range []string{ended, deleted} {
				waiting := e.inbox(ctx, id)
				for _, repeat := range []*store.Enqueue{item("k", ""), item("k", id)} {
					from := id
					if repeat.To != "" {
						from = sender
					}
					e.apply(ctx, from, repeat)
					Expect(repeat.Existed).To(BeTrue())
				}
				Expect(e.store.Apply(ctx, id, nil, item("new", ""))).To(MatchError(store.ErrTerminated))
				Expect(e.store.Apply(ctx, id, nil, item("", ""))).To(MatchError(store.ErrTerminated))
				Expect(e.inbox(ctx, id)).To(Equal(waiting))
			}
		})

		It("generates a key for an item without one", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, queued("a", "a"), queued("b", "b"))
			items := e.inbox(ctx, id)
			Expect(items[0].Key).NotTo(BeEmpty())
			Expect(items[0].Key).NotTo(Equal(items[1].Key))
		})

		It("refuses user messages beyond the limit and loses none", Label("MSG-07"), func(ctx SpecContext) {
			id := e.thread(ctx)
			limited := func(text string) *store.Enqueue {
				op := queued(text, text)
				op.MaxUserMessages = 2
				return op
			}
			e.apply(ctx, id, queued("system", "not counted"))
			e.apply(ctx, id, limited("1"))
			e.apply(ctx, id, limited("2"))
			Expect(e.store.Apply(ctx, id, nil, limited("3"))).To(MatchError(store.ErrQueueFull))
			e.apply(ctx, id, queued("system2", "not refused"))
			items := e.inbox(ctx, id)
			Expect(items).To(HaveLen(4))
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning}})
			instead := limited("4")
			instead.IfNoRun = true
			Expect(e.store.Apply(ctx, id, nil, instead)).To(MatchError(store.ErrQueueFull), "no run has to give way to it")
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{items[1].Seq}})
			e.apply(ctx, id, limited("3"))
		})

		It("refuses what comes from outside once so much waits, and nothing else", Label("MSG-07", "K8S-12"), func(ctx SpecContext) {
			id := e.thread(ctx)
			from := func(key string, bytes int) *store.Enqueue {
				text := strings.Repeat("x", bytes)
				payload, err := json.Marshal(store.Message{ID: key, Role: store.RoleSystem, Content: &text})
				Expect(err).NotTo(HaveOccurred())
				return &store.Enqueue{Bounded: true, Item: store.InboxItem{Key: key, Kind: store.InboxMessage, Payload: payload}}
			}
			for i := range 15 {
				e.apply(ctx, id, from(fmt.Sprint("large", i), 1<<20))
			}
			Expect(e.store.Apply(ctx, id, nil, from("over", 1<<20))).To(MatchError(store.ErrInboxFull))
			for _, item := range e.inbox(ctx, id) {
				e.apply(ctx, id, &store.Delay{Seq: item.Seq, Until: e.now() + 20})
			}
			Expect(e.store.Apply(ctx, id, nil, from("over", 1<<20))).To(MatchError(store.ErrInboxFull), "what is delayed waits too")
			Expect(e.store.Apply(ctx, id, nil, from("large1", 1<<20))).To(Succeed(), "a repeat is nothing new")
			e.apply(ctx, id, queued("child", "of the thread's own"), from("small", 1))
			var seqs []int64
			for _, item := range e.inbox(ctx, id) {
				seqs = append(seqs, item.Seq)
			}
			Expect(seqs).To(HaveLen(17))
			e.apply(ctx, id, &store.Dequeue{Seqs: seqs})
			e.apply(ctx, id, from("over", 1<<20))

			many := e.thread(ctx)
			var ops []store.Op
			for i := range store.MaxWaiting {
				ops = append(ops, from(fmt.Sprint(i), 1))
			}
			e.apply(ctx, many, ops...)
			Expect(e.store.Apply(ctx, many, nil, from("last", 1))).To(MatchError(store.ErrQueueFull))
		})

		It("of another thread takes an item in the same transaction", func(ctx SpecContext) {
			parent, child := e.thread(ctx), e.thread(ctx)
			fence, err := e.store.Acquire(ctx, child, "me", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			send := func(key string) *store.Enqueue {
				return &store.Enqueue{To: parent, Item: store.InboxItem{Key: key, Kind: store.InboxChildResult, Payload: json.RawMessage(`{"status":"completed"}`)}}
			}
			Expect(e.store.Apply(ctx, child, fence, send("r1"), &store.AppendMessage{Message: message("done")})).To(Succeed())
			Expect(e.inbox(ctx, parent)).To(HaveLen(1))
			Expect(e.inbox(ctx, child)).To(BeEmpty())
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{parent}))

			// The transaction is all or nothing across both threads.
			Expect(e.store.Apply(ctx, child, fence, send("r2"), &store.RemoveFile{Path: "/none"})).To(MatchError(store.ErrNotFound))
			Expect(e.inbox(ctx, parent)).To(HaveLen(1))
		})

		It("of a terminated or missing thread refuses, or drops silently when told to", Label("THR-05"), func(ctx SpecContext) {
			ended, child := e.thread(ctx), e.thread(ctx)
			e.apply(ctx, ended, &store.Terminate{Reason: "x"})
			for to, want := range map[string]error{ended: store.ErrTerminated, "none": store.ErrNotFound} {
				op := queued("m", "late")
				op.To = to
				Expect(e.store.Apply(ctx, child, nil, op)).To(MatchError(want))
				op.IgnoreTerminated = true
				e.apply(ctx, child, op, &store.AppendMessage{Message: message("goes on")})
			}
			Expect(e.inbox(ctx, ended)).To(BeEmpty())
			Expect(e.info(ctx, child).Messages).To(Equal(int64(2)))
		})
	})
}
