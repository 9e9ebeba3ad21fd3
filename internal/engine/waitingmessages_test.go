package engine_test

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// first is a step that a script takes for the message "go", and no other.
func first(calls ...skeinv1.ScriptToolCall) skeinv1.ScriptStep {
	return skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "user", Matches: "^go$"}, Times: ptr.To[int32](0), ToolCalls: calls}
}

// waitKinds are what a run may wait for. put defines the agent "waits", whose run waits after the message "go" and
// answers every other message.
var waitKinds = []struct {
	name, reason string
	put          func(w *enginetest.World)
}{
	{"a child", "", func(w *enginetest.World) {
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)}))
		w.Definitions.Put("waits", enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true, Resumable: true}}
		}, enginetest.Script(first(enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "x"})), enginetest.Say("re: {{.Last.Content}}")))
	}},
	{"an approval", skeinv1.ReasonWaitingForApproval, func(w *enginetest.World) {
		w.Definitions.Put("waits", enginetest.Approved(skeinv1.BuiltinKV, 0),
			enginetest.Script(first(enginetest.ToolCall("set_value", map[string]any{"key": "k", "value": 1})), enginetest.Say("re: {{.Last.Content}}")))
	}},
	{"a time", skeinv1.ReasonWaitingForTime, func(w *enginetest.World) {
		w.Definitions.Put("waits", enginetest.Builtin(skeinv1.BuiltinWait),
			enginetest.Script(first(enginetest.ToolCall("wait", map[string]any{"delayMs": 3600_000})), enginetest.Say("re: {{.Last.Content}}")))
	}},
}

// awaitWaiting waits until the run of a thread waits for a reason.
func awaitWaiting(ctx context.Context, w *enginetest.World, id, reason string) {
	GinkgoHelper()
	Eventually(lastRunOr).WithArguments(ctx, w, id).Should(And(HaveField("Status", store.RunWaiting), HaveField("Reason", reason)))
}

// awaitQueued waits until a thread whose run waits has n messages in its queue, and no replica looks at it.
func awaitQueued(ctx context.Context, w *enginetest.World, id string, n int) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(w.Store.Inbox(ctx, id)).To(HaveLen(n))
		g.Expect(w.Store.Runnable(ctx, 10)).NotTo(ContainElement(id))
		f, err := w.Store.Acquire(ctx, id, "test", hour)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.Store.Release(ctx, f)).To(Succeed())
	}).Should(Succeed())
	Expect(w.Store.Thread(ctx, id)).To(HaveField("Queued", int64(n)))
	Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunWaiting))
}

// queueCall queues a call of a tool on a thread.
func queueCall(ctx context.Context, w *enginetest.World, id, tool string, arguments map[string]any) {
	GinkgoHelper()
	Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: enginetest.JSON(
		store.QueuedTool{Name: tool, Arguments: enginetest.JSON(arguments)})}})).To(Succeed())
}

var _ = Describe("Messages to a thread whose run waits", Label("MSG-05", "MSG-08"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })
	// alone runs an engine that no sweep and no other replica helps.
	alone := func(change ...func(*engine.Options)) (*engine.Engine, func()) {
		return start(w, append(change, func(o *engine.Options) { o.SweepInterval = hour })...)
	}
	waits := func(ctx context.Context, id, reason string) {
		GinkgoHelper()
		awaitWaiting(ctx, w, id, reason)
	}
	left := func(ctx context.Context, id string, n int) {
		GinkgoHelper()
		awaitQueued(ctx, w, id, n)
	}
	open := func(ctx context.Context, id string) *thread.State {
		GinkgoHelper()
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		return st
	}
	approve := func(ctx context.Context, e *engine.Engine, id string) {
		GinkgoHelper()
		list, _, err := e.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(1))
		_, err = e.Decide(ctx, id, list[0].ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
	}
	approved := func() { waitKinds[1].put(w) }

	for _, kind := range waitKinds {
		It("stay in the queue over a stop, and are answered after a continue: "+kind.name, Label("RUN-04"), func(ctx SpecContext) {
			kind.put(w)
			e, _ := alone()
			id := makeThread(ctx, w, "waits")
			send(ctx, w, id, "go")
			waits(ctx, id, kind.reason)
			send(ctx, w, id, "one")
			left(ctx, id, 1)
			send(ctx, w, id, "two")
			left(ctx, id, 2)
			Expect(e.Stop(ctx, id, "enough")).To(Succeed())
			Expect(w.Store.Thread(ctx, id)).To(And(HaveField("Parked", true), HaveField("Queued", int64(2))))
			Expect(told(ctx, w, id)).To(HaveExactElements("user: go", HavePrefix("assistant ->"), "assistant: (stopped by user)"))
			Expect(open(ctx, id).Continue(ctx)).To(BeTrue())
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(told(ctx, w, id)[3:]).To(Equal([]string{"user: one", "user: two", "assistant: re: two"}))
		})

		It("go on after a cancellation of the run: "+kind.name, Label("RUN-10"), func(ctx SpecContext) {
			kind.put(w)
			e, _ := alone()
			id := makeThread(ctx, w, "waits")
			send(ctx, w, id, "go")
			waits(ctx, id, kind.reason)
			for i := range 5 {
				send(ctx, w, id, fmt.Sprint(i))
				left(ctx, id, i+1)
			}
			Expect(e.CancelRun(ctx, id, lastRun(ctx, w, id).ID, "no more")).To(Succeed())
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(w.Runs(ctx, id)).To(HaveLen(2))
			Expect(told(ctx, w, id)[2:]).To(Equal([]string{"assistant: (cancelled by user)", "user: 0", "user: 1", "user: 2", "user: 3", "user: 4", "assistant: re: 4"}))
		})

		It("are five at most: "+kind.name, Label("MSG-07"), func(ctx SpecContext) {
			kind.put(w)
			alone()
			id := makeThread(ctx, w, "waits")
			send(ctx, w, id, "go")
			waits(ctx, id, kind.reason)
			for i := range 5 {
				send(ctx, w, id, fmt.Sprint(i))
				left(ctx, id, i+1)
			}
			Expect(w.Send(ctx, id, "sixth")).To(MatchError(store.ErrQueueFull))
			left(ctx, id, 5)
		})
	}

	It("are taken by the run before its next model call, after the result", func(ctx SpecContext) {
		approved()
		e, _ := alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, skeinv1.ReasonWaitingForApproval)
		send(ctx, w, id, "one")
		left(ctx, id, 1)
		approve(ctx, e, id)
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->set_value", HavePrefix("tool set_value success"), "user: one", "assistant: re: one"))
		Expect(w.Runs(ctx, id)).To(HaveLen(1))
	})

	It("stay in the queue until the last call has its result", func(ctx SpecContext) {
		w.Definitions.Put("waits", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(
			first(enginetest.ToolCall("set_value", map[string]any{"key": "a", "value": 1}), enginetest.ToolCall("set_value", map[string]any{"key": "b", "value": 2})),
			enginetest.Say("re: {{.Last.Content}}")))
		e, _ := alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, skeinv1.ReasonWaitingForApproval)
		send(ctx, w, id, "one")
		left(ctx, id, 1)
		list, _, err := e.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(2))
		_, err = e.Decide(ctx, id, list[0].ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(told).WithArguments(ctx, w, id).Should(HaveLen(3))
		left(ctx, id, 1)
		_, err = e.Decide(ctx, id, list[1].ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)[2:]).To(HaveExactElements(HavePrefix("tool"), HavePrefix("tool"), "user: one", "assistant: re: one"))
	})

	It("are taken on another replica, which knows of them from the store alone", Label("RUN-02"), func(ctx SpecContext) {
		approved()
		_, stop := alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, skeinv1.ReasonWaitingForApproval)
		send(ctx, w, id, "one")
		left(ctx, id, 1)
		stop()
		other, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		approve(ctx, other, id)
		start(w)
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->set_value", HavePrefix("tool set_value success"), "user: one", "assistant: re: one"))
	})

	It("outlive a rollback of the run", Label("RUN-09"), func(ctx SpecContext) {
		approved()
		e, _ := alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, skeinv1.ReasonWaitingForApproval)
		send(ctx, w, id, "one")
		left(ctx, id, 1)
		Expect(takingPlace(skeinv1.RunPolicyRollback)(ctx, w, e, id)).To(Succeed())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: one", "user: instead", "assistant: re: instead"}))
	})

	It("stay in the queue while variables are missing, and are answered after a stop", Label("ENV-06"), func(ctx SpecContext) {
		ring := &envkeys.Keyring{}
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(keyset)).To(BeTrue())
		w.Threads.ServeEnv(thread.EnvOptions{Cipher: ring, Layers: &required{names: []string{"A"}}})
		w.Definitions.Put("waits", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		e, _ := alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, skeinv1.ReasonEnvMissing)
		send(ctx, w, id, "one")
		left(ctx, id, 1)
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		st := open(ctx, id)
		Expect(st.SetEnv(ctx, "A", "value", "")).To(Succeed())
		Expect(st.Continue(ctx)).To(BeTrue())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant: (stopped by user)", "user: one", "assistant: re: one"}))
	})

	It("do not keep calls that code queues from the run", Label("TOL-01"), func(ctx SpecContext) {
		waitKinds[0].put(w)
		alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, "")
		send(ctx, w, id, "one")
		left(ctx, id, 1)
		queueCall(ctx, w, id, "subagent_list", map[string]any{})
		Eventually(told).WithArguments(ctx, w, id).Should(ContainElement(HavePrefix("tool subagent_list success")))
		left(ctx, id, 1)
	})

	It("do not keep a queued call from waiting with the others", Label("TOL-01", "RUN-11"), func(ctx SpecContext) {
		waitKinds[0].put(w)
		w.Definitions.Put("waits", enginetest.Builtin(skeinv1.BuiltinSubagents, skeinv1.BuiltinWait), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true, Resumable: true}}
		}, enginetest.Script(first(enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "x"})), enginetest.Say("re: {{.Last.Content}}")))
		alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, "")
		queueCall(ctx, w, id, "wait", map[string]any{"delayMs": 3600_000})
		waits(ctx, id, skeinv1.ReasonWaitingForTime)
		Expect(lastRun(ctx, w, id).WakeAt).NotTo(BeZero(), "the store knows when it goes on")
	})

	It("of children that work on their own wait with them", Label("SUB-04"), func(ctx SpecContext) {
		approved()
		e, _ := alone()
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		waits(ctx, id, skeinv1.ReasonWaitingForApproval)
		Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxChildResult, Payload: enginetest.JSON(
			store.ChildResult{Reference: "r", Name: "loner", Status: "completed", Content: "news"})}})).To(Succeed())
		send(ctx, w, id, "one")
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Inbox(ctx, id)).To(HaveEach(HaveField("DelayedUntil", Not(BeZero()))))
			g.Expect(w.Store.Runnable(ctx, 10)).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		Expect(open(ctx, id).Continue(ctx)).To(BeTrue())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)[2:]).To(Equal([]string{"assistant: (stopped by user)", "user: [subagent loner (r) completed]\nnews", "user: one", "assistant: re: one"}))
	})
})

var _ = Describe("A parent's message to a child whose run waits", Label("SUB-03", "SUB-04", "RUN-04"), func() {
	// asks has a child wait for an approval, which its parent has asked for something, and then for more.
	asks := func(ctx context.Context, w *enginetest.World, resumable bool) (id, child string) {
		GinkgoHelper()
		w.Definitions.Put("child", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(
			first(enginetest.ToolCall("set_value", map[string]any{"key": "k", "value": 1})), enginetest.Say("re: {{.Last.Content}}")))
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{
				{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true, Resumable: resumable},
				{Name: "other", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "has subagent_message offered", Resumable: true},
			}
		}, enginetest.Script(first(enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "go"})), enginetest.Say("re: {{.Last.Content}}")))
		id = makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func(g Gomega) {
			children, err := w.Store.Children(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(children).To(HaveLen(1))
			child = children[0].ID
			g.Expect(lastRunOr(ctx, w, child).Status).To(Equal(store.RunWaiting))
			g.Expect(lastRunOr(ctx, w, id).Status).To(Equal(store.RunWaiting))
		}).WithContext(ctx).Should(Succeed())
		t, err := w.Store.Thread(ctx, child)
		Expect(err).NotTo(HaveOccurred())
		queueCall(ctx, w, id, "subagent_message", map[string]any{"reference": t.Reference, "message": "more"})
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Inbox(ctx, child)).To(HaveExactElements(HaveField("DelayedUntil", Not(BeZero()))))
			g.Expect(w.Store.Inbox(ctx, id)).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		return id, child
	}

	It("is answered with an error when the child's run is stopped and the child ends with it", func(ctx SpecContext) {
		w := newWorld()
		e, _ := start(w)
		id, child := asks(ctx, w, false)
		Expect(e.Stop(ctx, child, "enough")).To(Succeed())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElements("tool subagent_create error: (stopped by user)",
			"tool subagent_message error: the subagent ended before it took this message, so the message has no answer"))
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})

	It("is answered by the next run when the child's run is cancelled", func(ctx SpecContext) {
		w := newWorld()
		e, _ := start(w)
		id, child := asks(ctx, w, true)
		Expect(e.CancelRun(ctx, child, lastRun(ctx, w, child).ID, "")).To(Succeed())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(ContainElements("tool subagent_create error: (cancelled by user)", "tool subagent_message success: re: more"))
	})

	for _, resumable := range []bool{true, false} {
		It(fmt.Sprintf("is not answered when the parent's run is stopped (resumable: %v)", resumable), func(ctx SpecContext) {
			w := newWorld()
			e, _ := start(w)
			id, child := asks(ctx, w, resumable)
			Expect(e.Stop(ctx, id, "enough")).To(Succeed())
			Expect(lastRun(ctx, w, child).Status).To(Equal(store.RunStopped))
			Expect(w.Runs(ctx, child)).To(HaveLen(1))
			Expect(w.Store.Thread(ctx, child)).To(HaveField("Parked", resumable))
			Expect(w.Store.Inbox(ctx, id)).To(BeEmpty(), "no call waits for what the child has to say")
			Expect(w.Store.Runnable(ctx, 10)).To(BeEmpty())
		})
	}

	It("is not answered although the engine that stopped the parent's run crashed", func(ctx SpecContext) {
		w := newWorld()
		_, stop := start(w)
		_, child := asks(ctx, w, true)
		stop()
		items, err := w.Store.Inbox(ctx, child)
		Expect(err).NotTo(HaveOccurred())
		var m store.Message
		Expect(json.Unmarshal(items[0].Payload, &m)).To(Succeed())
		calls := runlog.RepliesOf(&m)
		Expect(calls).To(HaveLen(1))
		// The stop request names the message's call alone, as if the first call had its result.
		Expect(w.Store.Apply(ctx, child, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxStop, Payload: enginetest.JSON(store.StopRequest{Calls: calls})}})).To(Succeed())
		start(w)
		Eventually(lastRunOr).WithArguments(ctx, w, child).Should(HaveField("Status", store.RunStopped))
		Expect(w.Store.Thread(ctx, child)).To(And(HaveField("Parked", true), HaveField("Queued", int64(1))))
	})
})
