package engine_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Calls that need approval", Label("RUN-11"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	set := func(key string, value any) skeinv1.ScriptToolCall {
		return enginetest.ToolCall("set_value", map[string]any{"key": key, "value": value})
	}
	calls := func(cs ...skeinv1.ScriptToolCall) skeinv1.ScriptStep { return skeinv1.ScriptStep{ToolCalls: cs} }
	say := enginetest.Say("re: {{.Last.Content}}")
	value := func(ctx context.Context, id, key string) string {
		GinkgoHelper()
		v, err := w.Store.Value(ctx, id, key)
		if err != nil {
			Expect(err).To(MatchError(store.ErrNotFound))
		}
		return string(v)
	}
	// waits until so many calls wait, the run being parked, and gives them.
	waits := func(ctx context.Context, e *engine.Engine, id string, n int) []approval.Call {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			r, err := w.Store.Run(ctx, id, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Status).To(Equal(store.RunWaiting))
			g.Expect(e.Approvals(ctx, id, approval.Page{})).To(HaveLen(n))
		}).Should(Succeed())
		list, _, err := e.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		return list
	}
	approve := store.Approval{Approved: true, By: "ada"}
	refuse := store.Approval{By: "bob", Reason: "too dear"}

	It("wait for it, and are made in their order as each is decided", func(ctx SpecContext) {
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(calls(set("a", 1), set("b", 2), set("c", 3)), say))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		list := waits(ctx, e, id, 3)
		Expect(lastRun(ctx, w, id)).To(And(HaveField("Reason", skeinv1.ReasonWaitingForApproval), HaveField("Message", ContainSubstring("set_value ("+list[0].ToolCallID+")"))))
		Expect(list[1]).To(And(HaveField("Name", "set_value"), HaveField("Arguments", MatchJSON(`{"key":"b","value":2}`)), HaveField("Decision", BeNil())))
		Expect(w.Store.Runnable(ctx, 10)).To(BeEmpty(), "nobody holds it, and there is nothing to do")

		_, err := e.Decide(ctx, id, list[2].ToolCallID, store.Approval{Approved: true, By: "eve", Arguments: []byte(`{"key":"c","value":33}`)})
		Expect(err).NotTo(HaveOccurred())
		_, err = e.Decide(ctx, id, list[1].ToolCallID, refuse)
		Expect(err).NotTo(HaveOccurred())
		waits(ctx, e, id, 1)
		Expect(value(ctx, id, "c")).To(BeEmpty(), "it is not its turn")
		_, err = e.Decide(ctx, id, list[0].ToolCallID, approve)
		Expect(err).NotTo(HaveOccurred())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(value(ctx, id, "a") + value(ctx, id, "b") + value(ctx, id, "c")).To(Equal("133"))

		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs).To(HaveLen(6))
		for i, c := range msgs[1].ToolCalls {
			Expect(msgs[2+i].ToolCallID).To(Equal(c.ID), "in the order of the calls")
		}
		Expect(*msgs[3].Content).To(Equal("the call was not made: bob refused it, saying: too dear"))
		Expect(msgs[3].ToolStatus).To(Equal("error"))
		Expect(*msgs[4].Content).To(HaveSuffix(`[approved with other arguments: {"key":"c","value":33}]`))
		Expect(msgs[2].Metadata["approval"]).To(And(HaveKeyWithValue("approved", true), HaveKeyWithValue("by", "ada"), HaveKeyWithValue("at", BeNumerically(">", 0))))
		Expect(e.Approvals(ctx, id, approval.Page{})).To(BeEmpty())

		events, err := w.Store.Events(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		var seen []string
		for _, ev := range events {
			switch ev.Type {
			case store.EventApprovalRequested, store.EventApprovalDecided, store.EventToolStarted, store.EventToolEnded:
				seen = append(seen, ev.Type)
			}
		}
		Expect(seen).To(Equal([]string{
			store.EventApprovalRequested, store.EventApprovalRequested, store.EventApprovalRequested,
			store.EventApprovalDecided, store.EventApprovalDecided, store.EventApprovalDecided,
			store.EventToolStarted, store.EventToolEnded, store.EventToolStarted, store.EventToolEnded, store.EventToolStarted, store.EventToolEnded,
		}))
	})

	It("come in pages, in their order, which end early when their arguments are large", func(ctx SpecContext) {
		large := strings.Repeat("x", 40<<10)
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(calls(set("a", large), set("b", large), set("c", 3), set("d", large)), say))
		e, stop := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		all := waits(ctx, e, id, 4)
		page := func(p approval.Page) (calls []approval.Call, more bool) {
			GinkgoHelper()
			calls, more, err := e.Approvals(ctx, id, p)
			Expect(err).NotTo(HaveOccurred())
			return calls, more
		}
		list, more := page(approval.Page{Limit: 2, Offset: 1})
		Expect(list).To(Equal(all[1:3]))
		Expect(more).To(BeTrue())
		list, more = page(approval.Page{MaxBytes: 60 << 10})
		Expect(list).To(Equal(all[:1]))
		Expect(more).To(BeTrue())
		list, more = page(approval.Page{MaxBytes: 60 << 10, Offset: 1})
		Expect(list).To(Equal(all[1:3]), "a small one with a large one")
		Expect(more).To(BeTrue())
		list, more = page(approval.Page{MaxBytes: 1, Offset: 3})
		Expect(list).To(Equal(all[3:]), "one at least")
		Expect(more).To(BeFalse())
		list, more = page(approval.Page{Limit: 2, Offset: 4})
		Expect(list).To(BeEmpty())
		Expect(more).To(BeFalse())

		stop() // otherwise the run takes the decision, and the list has the call no longer
		_, err := e.Decide(ctx, id, all[2].ToolCallID, store.Approval{Approved: true, By: "ada", Arguments: []byte(`{"key":"c","value":"` + large + `"}`)})
		Expect(err).NotTo(HaveOccurred())
		list, _ = page(approval.Page{MaxBytes: 60 << 10, Offset: 1})
		Expect(list).To(Equal(all[1:2]), "a decision counts too")
		list, _ = page(approval.Page{Offset: 2})
		Expect(list[0].Decision).To(HaveValue(And(HaveField("By", "ada"), HaveField("Approved", true))))
		Expect(list[1].Decision).To(BeNil())
	})

	It("do not block parallel calls that need none", func(ctx SpecContext) {
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Builtin(skeinv1.BuiltinEffects), func(a *definition.Agent) {
			a.A.Prompt.Spec.ParallelToolCalls = true
		}, enginetest.Script(calls(set("a", 1), enginetest.ToolCall("schedule_effect", map[string]any{"name": "now"})), say))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		list := waits(ctx, e, id, 1)
		Expect(w.Effects.Scheduled(id)).To(HaveLen(1))
		_, err := e.Decide(ctx, id, list[0].ToolCallID, approve)
		Expect(err).NotTo(HaveOccurred())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(value(ctx, id, "a")).To(Equal("1"))
	})

	It("take other arguments only if these match the tool's schema, and wait on otherwise", func(ctx SpecContext) {
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(calls(set("a", 1)), say))
		e, stop := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		call := waits(ctx, e, id, 1)[0].ToolCallID
		wrong := func() {
			GinkgoHelper()
			_, err := e.Decide(ctx, id, call, store.Approval{Approved: true, By: "eve", Arguments: []byte(`{"key":7}`)})
			Expect(thread.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(HavePrefix("arguments: the tool set_value does not accept these arguments: "), ContainSubstring("/key: "), ContainSubstring("'value'"), HaveSuffix("or refuse it"))))
			Expect(waits(ctx, e, id, 1)[0].Decision).To(BeNil())
		}
		wrong()
		stop()
		e, _ = start(w)
		wrong()
		_, err := e.Decide(ctx, id, call, store.Approval{Approved: true, By: "eve", Arguments: []byte(`{"key":"b","value":2}`)})
		Expect(err).NotTo(HaveOccurred())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(value(ctx, id, "b")).To(Equal("2"))
	})

	It("are decided on once: the same decision again is no error, another one is", func(ctx SpecContext) {
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(calls(set("a", 1)), say))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		call := waits(ctx, e, id, 1)[0].ToolCallID
		first, err := e.Decide(ctx, id, call, approve)
		Expect(err).NotTo(HaveOccurred())
		again := func() {
			GinkgoHelper()
			got, err := e.Decide(ctx, id, call, store.Approval{Approved: true, By: "eve"})
			Expect(err).NotTo(HaveOccurred())
			Expect(got.Decision).To(Equal(first.Decision), "who was first")
			_, err = e.Decide(ctx, id, call, refuse)
			Expect(err).To(MatchError(ContainSubstring("ada has approved the call already")))
			_, err = e.Decide(ctx, id, call, store.Approval{Approved: true, By: "eve", Arguments: []byte(`{"key":"x"}`)})
			Expect(err).To(BeAssignableToTypeOf(&approval.DecidedError{}))
		}
		again()
		rest(ctx, w, id)
		again()
		_, err = e.Decide(ctx, id, "nothing", approve)
		Expect(err).To(BeAssignableToTypeOf(&definition.UnknownError{}))
	})

	It("are refused after their timeout", func(ctx SpecContext) {
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 30*time.Millisecond), enginetest.Script(calls(set("a", 1)), say))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(ContainElement(ContainSubstring("no approval came in time")))
		Expect(value(ctx, id, "a")).To(BeEmpty())
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs[2].Metadata["approval"]).To(HaveKeyWithValue("expired", true))
		_, err = e.Decide(ctx, id, msgs[2].ToolCallID, approve)
		Expect(err).To(HaveOccurred())
	})

	It("that are wrong, or made by code, are not asked for", func(ctx SpecContext) {
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(enginetest.Call("set_value", map[string]any{"key": 1}), say))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		res, err := e.InvokeTool(ctx, id, "k", "set_value", []byte(`{"key":"a","value":1}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Content).To(ContainSubstring("use queueTool"))
		Expect(value(ctx, id, "a")).To(BeEmpty())

		Expect(e.QueueTool(ctx, id, "k", "set_value", []byte(`{"key":"a","value":1}`))).To(Succeed())
		call := waits(ctx, e, id, 1)[0].ToolCallID
		_, err = e.Decide(ctx, id, call, approve)
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)
		Expect(value(ctx, id, "a")).To(Equal("1"))
	})

	It("end with their run, and what is decided too late starts nothing", func(ctx SpecContext) {
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(calls(set("a", 1)), say))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		call := waits(ctx, e, id, 1)[0].ToolCallID
		Expect(e.Stop(ctx, id, "no")).To(Succeed())
		_, err := e.Decide(ctx, id, call, approve)
		Expect(err).To(BeAssignableToTypeOf(&definition.UnknownError{}))
		Expect(w.Store.Apply(ctx, id, nil, &store.Continue{}, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxApproval, Payload: []byte(`{"toolCallId":"` + call + `","approved":true}`)}})).To(Succeed())
		Eventually(func() ([]store.InboxItem, error) { return w.Store.Inbox(ctx, id) }).Should(BeEmpty())
		Expect(w.Runs(ctx, id)).To(HaveLen(1))
		Expect(value(ctx, id, "a")).To(BeEmpty())
	})
})

var _ = Describe("Waiting for a time", Label("RUN-11", "TOL-02"), func() {
	It("parks the run, which another engine continues", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinWait, skeinv1.BuiltinKV), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("wait", map[string]any{"delayMs": 3600_000}),
				enginetest.ToolCall("set_value", map[string]any{"key": "after", "value": true}),
			}}, enginetest.Say("re: {{.Last.Content}}")))
		_, stop := start(w)
		id := makeThread(ctx, w, "agent", func(n *thread.NewThread) { n.Message = "go" })
		Eventually(func(g Gomega) {
			r, err := w.Store.Run(ctx, id, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r).To(HaveValue(And(HaveField("Status", store.RunWaiting), HaveField("Reason", skeinv1.ReasonWaitingForTime), HaveField("WakeAt", BeNumerically(">", r.StartedAt)))))
		}).Should(Succeed())
		_, err := w.Store.Value(ctx, id, "after")
		Expect(err).To(MatchError(store.ErrNotFound))
		stop()
		due := lastRun(ctx, w, id).WakeAt
		start(w, func(o *engine.Options) { o.Clock = clocktesting.NewFakeClock(time.UnixMicro(due)) })
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{
			"user: go", "assistant ->wait ->set_value", "tool wait success: the time is over", `tool set_value success: {"key":"after"}`,
			`assistant: re: {"key":"after"}`}))
	})
})
