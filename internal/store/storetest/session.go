package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeState(e *env) {
	set := func(key, value string) store.StateChange {
		return store.StateChange{Verb: store.StateSet, Key: key, Value: json.RawMessage(value)}
	}
	push := func(key, value string, max int) store.StateChange {
		return store.StateChange{Verb: store.StatePush, Key: key, Value: json.RawMessage(value), Max: max}
	}
	state := func(ctx context.Context, id string) string {
		GinkgoHelper()
		page, err := e.store.State(ctx, id, store.StateQuery{})
		Expect(err).NotTo(HaveOccurred())
		var parts []string
		for _, s := range page.Entries {
			parts = append(parts, fmt.Sprintf("%q:%s", s.Key, s.Value))
		}
		all := "{" + strings.Join(parts, ",") + "}"
		Expect(page.Bytes).To(BeEquivalentTo(len(all)), all)
		Expect(page.Total).To(BeEquivalentTo(len(parts)))
		return all
	}
	Describe("thread state", Label("STA-02", "STA-03"), func() {
		It("is merged change by change, with keys in the order in which they were first set", func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			Expect(state(ctx, id)).To(Equal(`{}`))
			op := &store.MergeState{Changes: []store.StateChange{set("b", `1`), set("a", `{"x":null}`), push("list", `1`, 0), set("b", `2`)}}
			e.apply(ctx, id, op)
			Expect(op.Persisted).To(BeTrue())
			Expect(state(ctx, id)).To(Equal(`{"b":2,"a":{"x":null},"list":[1]}`))
			Expect(op.Bytes).To(BeEquivalentTo(len(`{"b":2,"a":{"x":null},"list":[1]}`)))
			e.apply(ctx, id, &store.MergeState{Changes: []store.StateChange{{Verb: store.StateDelete, Key: "b"}, push("list", `2`, 0), push("list", `3`, 2), set("b", `"é\""`)}})
			Expect(state(ctx, id)).To(Equal(`{"a":{"x":null},"list":[2,3],"b":"é\""}`))
			Expect(e.store.StateValue(ctx, id, "list")).To(MatchJSON(`[2,3]`))
			_, err := e.store.StateValue(ctx, id, "none")
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(state(ctx, other)).To(Equal(`{}`))
			e.apply(ctx, id, &store.MergeState{Changes: []store.StateChange{set("x", `1`), {Verb: store.StateClear}, push("list", `9`, 0)}})
			Expect(state(ctx, id)).To(Equal(`{"list":[9]}`))
			page, err := e.store.State(ctx, id, store.StateQuery{Limit: 1, Offset: 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(page.Entries).To(BeEmpty())
			Expect(page.Total).To(BeEquivalentTo(1))
		})

		It("refuses a push to a value that is not an array", Label("STA-04"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.MergeState{Changes: []store.StateChange{set("k", `"text"`)}})
			err := e.store.Apply(ctx, id, nil, &store.MergeState{Strict: true, Changes: []store.StateChange{set("other", `1`), push("k", `1`, 0)}})
			Expect(err).To(MatchError(store.ErrNotArray))
			Expect(state(ctx, id)).To(Equal(`{"k":"text"}`), "nothing of the batch is kept")
			e.apply(ctx, id, &store.MergeState{RunID: "sess_1", Changes: []store.StateChange{set("other", `1`), push("k", `1`, 0)}})
			Expect(state(ctx, id)).To(Equal(`{"k":"text","other":1}`))
			Expect(e.events(ctx, id)).To(ContainElement(And(HaveField("Type", store.EventStateSkipped), HaveField("RunID", "sess_1"),
				HaveField("Data", ContainSubstring(store.StateNotArray)))))
			Expect(e.store.StateWarnings(ctx, id)).To(BeEmpty())
		})

		It("is not saved when it is too large, and records that and until when", Label("STA-05"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.MergeState{MaxBytes: 20, Changes: []store.StateChange{set("k", `"0123456789"`)}})
			Expect(state(ctx, id)).To(HaveLen(18))
			err := e.store.Apply(ctx, id, nil, &store.MergeState{MaxBytes: 20, Strict: true, Changes: []store.StateChange{set("l", `1`)}})
			Expect(err).To(MatchError(store.ErrStateTooLarge))
			op := &store.MergeState{MaxBytes: 20, RunID: "sess_1", Changes: []store.StateChange{set("l", `1`)}}
			e.apply(ctx, id, op, &store.AppendMessage{Message: message("kept")})
			Expect(op.Persisted).To(BeFalse())
			Expect(op.Bytes).To(BeEquivalentTo(24))
			Expect(state(ctx, id)).To(Equal(`{"k":"0123456789"}`))
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"kept"}), "the rest of the transaction counts")
			Expect(e.store.StateWarnings(ctx, id)).To(ConsistOf(And(HaveField("Scope", store.ScopeThread), HaveField("Reason", store.ReasonStateTooLarge), HaveField("At", e.now()))))
			Expect(e.eventTypes(ctx, id)).To(ContainElement(store.EventStateSkipped))
			e.apply(ctx, id, &store.MergeState{MaxBytes: 20, Changes: []store.StateChange{set("k", `1`), set("l", `1`)}})
			Expect(e.store.StateWarnings(ctx, id)).To(BeEmpty())
			Expect(state(ctx, id)).To(Equal(`{"k":1,"l":1}`))
		})

		It("of a session is stored with its run", Label("STA-01"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "a", Status: store.RunRunning}})
			e.apply(ctx, id, &store.SkipState{RunID: "sess_1", Skipped: store.StateSkipped{Scope: store.ScopeSession, Reason: store.ReasonStateTooLarge}})
			Expect(e.store.StateWarnings(ctx, id)).To(HaveLen(1))
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "a", Status: store.RunSucceeded, SessionState: json.RawMessage(`{"k":1}`)}})
			Expect(e.store.StateWarnings(ctx, id)).To(BeEmpty())
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "sess_1", Agent: "a", Status: store.RunSucceeded}})
			r, err := e.store.Run(ctx, id, "sess_1")
			Expect(err).NotTo(HaveOccurred())
			Expect(r.SessionState).To(MatchJSON(`{"k":1}`))
		})
	})
}

func describeLifecycle(e *env) {
	Describe("the lifecycle feed", Label("STA-06"), func() {
		It("lists events of threads and sessions, from any position on", func(ctx SpecContext) {
			read := func(q store.LifecycleQuery) ([]string, store.LifecycleCursor) {
				GinkgoHelper()
				var page *store.LifecyclePage
				Eventually(func() bool { // an earlier transaction, for example a notification of a commit, may still be in progress
					var err error
					page, err = e.store.Lifecycle(ctx, q)
					Expect(err).NotTo(HaveOccurred())
					return page.InFlight
				}).Should(BeFalse())
				var out []string
				for _, ev := range page.Events {
					out = append(out, strings.TrimSpace(ev.ThreadName+" "+ev.Type+" "+ev.RunID+" "+ev.Reason))
				}
				return out, page.Next
			}
			id := e.thread(ctx)
			e.threadIn(ctx, "other")
			run := store.Run{ID: "sess_1", Agent: "helper", Status: store.RunRunning}
			e.apply(ctx, id, &store.PutRun{Run: run})
			first, next := read(store.LifecycleQuery{Namespace: "default", Limit: 1})
			Expect(first).To(Equal([]string{"thread-1 thread.created"}))
			run.Status = store.RunWaiting
			e.apply(ctx, id, &store.PutRun{Run: run})
			run.Status = store.RunFailed
			e.apply(ctx, id, &store.PutRun{Run: run})
			e.apply(ctx, id, &store.PutRun{Run: run})
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			rest, next := read(store.LifecycleQuery{Namespace: "default", After: next})
			Expect(rest).To(Equal([]string{"thread-1 session.started sess_1", "thread-1 session.completed sess_1 failed", "thread-1 thread.destroyed  deleted"}))
			again, end := read(store.LifecycleQuery{Namespace: "default", After: next})
			Expect(again).To(BeEmpty())
			Expect(end).To(Equal(next))
			Eventually(func() store.LifecycleCursor {
				_, latest := read(store.LifecycleQuery{Latest: true})
				return latest
			}).Should(Equal(next))
			all, _ := read(store.LifecycleQuery{})
			Expect(all).To(ContainElement("thread-2 thread.created"))

			e.clock.Step(time.Hour)
			removed, _, err := e.store.SweepSession(ctx, e.now())
			Expect(err).NotTo(HaveOccurred())
			Expect(removed).To(BeEquivalentTo(5))
			e.thread(ctx)
			fresh, _ := read(store.LifecycleQuery{After: next})
			Expect(fresh).To(Equal([]string{"thread-3 thread.created"}), "a cursor stays valid when all events before it were swept")
		})
	})
}

func describeUsage(e *env) {
	Describe("usage", Label("LOG-03"), func() {
		It("is totalled by thread, tree, agent and namespace, purged threads included", func(ctx SpecContext) {
			child := func(id, parent string) string {
				GinkgoHelper()
				_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "default", Name: id, Agent: "helper", ParentID: parent, Reference: id})
				Expect(err).NotTo(HaveOccurred())
				return id
			}
			ran := func(thread, run, agent string, tokens int) {
				GinkgoHelper()
				r := store.Run{ID: run, Agent: agent, Status: store.RunRunning, StartedAt: e.now(), Steps: 2}
				e.apply(ctx, thread, &store.PutRun{Run: r})
				r.Status, r.EndedAt = store.RunSucceeded, e.now()+3000
				r.Usage = json.RawMessage(fmt.Sprintf(`{"inputTokens":%d,"outputTokens":1,"cachedTokens":2,"cost":0.5}`, tokens))
				e.apply(ctx, thread, &store.PutRun{Run: r})
				e.apply(ctx, thread, &store.PutRun{Run: r}) // counted only once
			}
			sum := func(q store.UsageQuery) string {
				GinkgoHelper()
				u, err := e.store.Usage(ctx, q)
				Expect(err).NotTo(HaveOccurred())
				Expect(u.OutputTokens).To(Equal(u.Runs))
				Expect(u.CacheReadTokens).To(Equal(2 * u.Runs))
				Expect(u.Turns).To(Equal(2 * u.Runs))
				Expect(u.DurationMs).To(Equal(3 * u.Runs))
				Expect(u.Cost).To(BeNumerically("~", 0.5*float64(u.Runs)))
				return fmt.Sprintf("%d in %d", u.InputTokens, u.Threads)
			}
			root := e.thread(ctx)
			a, b := child("a", root), child("b", root)
			leaf := child("leaf", a)
			Expect(sum(store.UsageQuery{ThreadID: root, Subtree: true})).To(Equal("0 in 0"))
			ran(root, "r1", "helper", 1)
			ran(root, "r2", "other", 10)
			ran(leaf, "r3", "helper", 100)
			ran(b, "r4", "helper", 1000)
			Expect(sum(store.UsageQuery{ThreadID: root})).To(Equal("11 in 1"))
			Expect(sum(store.UsageQuery{ThreadID: root, Subtree: true})).To(Equal("1111 in 3"))
			Expect(sum(store.UsageQuery{ThreadID: a, Subtree: true})).To(Equal("100 in 1"))
			Expect(sum(store.UsageQuery{Namespace: "default"})).To(Equal("1111 in 3"))
			Expect(sum(store.UsageQuery{Namespace: "default", Agent: "other"})).To(Equal("10 in 1"))
			Expect(sum(store.UsageQuery{Namespace: "nobody"})).To(Equal("0 in 0"))

			for _, id := range []string{leaf, a, b} {
				_, err := e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(sum(store.UsageQuery{ThreadID: root, Subtree: true})).To(Equal("1111 in 3"), "the total of the tree keeps the usage of descendants")
			_, err := e.store.PurgeThread(ctx, root)
			Expect(err).NotTo(HaveOccurred())
			Expect(sum(store.UsageQuery{ThreadID: root, Subtree: true})).To(Equal("0 in 0"))
			Expect(sum(store.UsageQuery{Namespace: "default", Agent: "other"})).To(Equal("10 in 1"))
			u, err := e.store.Usage(ctx, store.UsageQuery{Namespace: "default"})
			Expect(err).NotTo(HaveOccurred())
			Expect(u.InputTokens).To(BeEquivalentTo(1111))

			cut := e.thread(ctx)
			e.apply(ctx, cut, &store.PutRun{Run: store.Run{ID: "r5", Agent: "cut", Status: store.RunRunning, Usage: json.RawMessage(`{"inputTokens":7}`)}})
			_, err = e.store.PurgeThread(ctx, cut)
			Expect(err).NotTo(HaveOccurred())
			u, err = e.store.Usage(ctx, store.UsageQuery{Namespace: "default", Agent: "cut"})
			Expect(err).NotTo(HaveOccurred())
			Expect(u.InputTokens).To(BeEquivalentTo(7), "a run that was interrupted by the purge of its thread counts")
		})
	})
}

func describeImport(e *env) {
	Describe("an import", Label("LOG-02"), func() {
		lines := func(n int, failure error) func(func(store.ImportLine, error) bool) {
			return func(yield func(store.ImportLine, error) bool) {
				for i := range n {
					m := message(fmt.Sprint("m", i))
					m.CreatedAt = int64(i + 1)
					if !yield(store.ImportLine{Message: m}, nil) ||
						!yield(store.ImportLine{Event: &store.Event{Type: store.EventImportedResult, Data: json.RawMessage(`{}`), CreatedAt: int64(i + 1)}}, nil) {
						return
					}
				}
				if failure != nil {
					yield(store.ImportLine{}, failure)
				}
			}
		}
		It("fills an empty thread, once, all or nothing", func(ctx SpecContext) {
			id := e.thread(ctx)
			_, err := e.store.Imported(ctx, id)
			Expect(err).To(MatchError(store.ErrNotFound))
			bad := errors.New("line 3")
			Expect(e.store.Apply(ctx, id, nil, &store.ImportConversation{Lines: lines(3, bad)})).To(MatchError(bad))
			Expect(e.events(ctx, id)).To(BeEmpty())
			op := &store.ImportConversation{Lines: lines(3, nil), Record: store.ImportRecord{Manifest: json.RawMessage(`{"agentId":"x"}`)}, Title: "t", TaskID: "k"}
			e.apply(ctx, id, op)
			Expect(op.Record.LastSeq).To(BeEquivalentTo(6))
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"m0", "m1", "m2"}))
			Expect(e.info(ctx, id)).To(HaveValue(And(HaveField("Title", "t"), HaveField("TaskID", "k"), HaveField("LastSeq", int64(6)))))
			r, err := e.store.Imported(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(r.Manifest).To(MatchJSON(`{"agentId":"x"}`))
			entries, err := e.store.LogEntries(ctx, id, 2, 1, store.EventImportedResult, store.EventImportedToolUse)
			Expect(err).NotTo(HaveOccurred())
			Expect(entries).To(HaveExactElements(And(HaveField("Seq", int64(4)), HaveField("CreatedAt", int64(2)))))
			Expect(e.store.Apply(ctx, id, nil, &store.ImportConversation{Lines: lines(1, nil)})).To(MatchError(store.ErrNotEmpty))
			full := e.thread(ctx, queued("q", "waits"))
			Expect(e.store.Apply(ctx, full, nil, &store.ImportConversation{Lines: lines(1, nil)})).To(MatchError(store.ErrNotEmpty))
			empty := e.thread(ctx)
			e.apply(ctx, empty, &store.ImportConversation{Lines: lines(0, nil)})
			Expect(e.store.Apply(ctx, empty, nil, &store.ImportConversation{Lines: lines(1, nil)})).To(MatchError(store.ErrNotEmpty), "an empty import counts as an import")
		})

		It("fills a thread that has no conversation, also after a destroyed one and with hooks in the inbox", Label("LOG-02", "THR-06"), func(ctx SpecContext) {
			hooked := e.thread(ctx, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxHook, Payload: json.RawMessage(`{"hook":"after_thread_created"}`)}})
			e.apply(ctx, hooked, &store.ImportConversation{Lines: lines(1, nil)})
			Expect(e.inbox(ctx, hooked)).To(HaveLen(1), "the hook is still called")

			for _, had := range []store.Op{
				&store.AppendMessage{Message: message("said")},
				&store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: store.RunRunning}},
				&store.ImportConversation{Lines: lines(2, nil)},
				queued("q", "waits"),
			} {
				id := e.thread(ctx)
				e.apply(ctx, id, had)
				Expect(e.store.Apply(ctx, id, nil, &store.ImportConversation{Lines: lines(3, nil)})).To(MatchError(store.ErrNotEmpty), "%T", had)
				e.apply(ctx, id, &store.Destroy{Reason: store.DestroyedExplicit})
				e.apply(ctx, id, &store.ImportConversation{Lines: lines(3, nil)})
				Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"m0", "m1", "m2"}), "%T", had)
			}
			for _, has := range []store.Op{
				&store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: json.RawMessage(`{"name":"t","arguments":{}}`)}},
				&store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: store.RunWaiting}},
			} {
				id := e.thread(ctx)
				e.apply(ctx, id, &store.Destroy{Reason: store.DestroyedExplicit}, has)
				Expect(e.store.Apply(ctx, id, nil, &store.ImportConversation{Lines: lines(1, nil)})).To(MatchError(store.ErrNotEmpty), "%T", has)
			}
		})
	})
}
