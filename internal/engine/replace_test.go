package engine_test

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A message that meets a run", Label("RUN-09"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "work"}, ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("set_value", map[string]any{"key": "k", "value": 1})}},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool"}, Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "hang"}, Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)},
			enginetest.Say("echo: {{.Last.Content}}")))
	})
	queue := func(ctx context.Context, e *engine.Engine, id, text string, policy skeinv1.RunPolicy, key ...string) (*store.Message, error) {
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		n := thread.NewMessage{Content: &text}
		if len(key) > 0 {
			n.IdempotencyKey = key[0]
		}
		return e.Queue(ctx, st, t, n, policy)
	}
	// busy waits until a run is in the middle of its second model call, or of its first.
	busy := func(ctx context.Context, id, text string, messages int) store.Run {
		GinkgoHelper()
		send(ctx, w, id, text)
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunRunning))
			g.Expect(w.Messages(ctx, id)).To(HaveLen(messages))
		}).Should(Succeed())
		return lastRun(ctx, w, id)
	}

	It("is refused by the policy reject, and taken by a thread at rest", func(ctx SpecContext) {
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		busy(ctx, id, "hang", 1)
		_, err := queue(ctx, e, id, "more", skeinv1.RunPolicyReject)
		Expect(err).To(MatchError(store.ErrRunning))
		Expect(w.Store.Inbox(ctx, id)).To(BeEmpty())
		Expect(e.Stop(ctx, id, "")).To(Succeed())
		_, err = queue(ctx, e, id, "now", skeinv1.RunPolicyReject)
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: hang", "assistant: (stopped by user)", "user: now", "assistant: echo: now"))
	})

	It("takes the place of the run by the policy interrupt, on any replica", func(ctx SpecContext) {
		e, _ := start(w)
		other, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		for _, by := range []*engine.Engine{e, other} {
			id := makeThread(ctx, w, "agent")
			first := busy(ctx, id, "hang", 1)
			_, err := queue(ctx, by, id, "instead", skeinv1.RunPolicyInterrupt, "k")
			Expect(err).NotTo(HaveOccurred())
			Expect(w.Store.Run(ctx, id, first.ID)).To(And(HaveField("Status", store.RunStopped), HaveField("Reason", skeinv1.ReasonInterrupted)))
			Eventually(func() ([]store.Run, error) { return w.Runs(ctx, id) }).Should(HaveLen(2))
			rest(ctx, w, id)
			Expect(told(ctx, w, id)).To(Equal([]string{"user: hang", "assistant: (interrupted by a new message)", "user: instead", "assistant: echo: instead"}))
			Expect(w.Store.Thread(ctx, id)).To(HaveField("Parked", false))

			busy(ctx, id, "hang", 5)
			_, err = queue(ctx, by, id, "instead", skeinv1.RunPolicyInterrupt, "k")
			Expect(err).NotTo(HaveOccurred())
			Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunRunning), "a repeat ends nothing")
			Expect(e.Stop(ctx, id, "")).To(Succeed())
		}
	})

	It("takes back what the run has said by the policy rollback, and says what stays done", func(ctx SpecContext) {
		e, _ := start(w)
		id := makeThread(ctx, w, "agent", func(n *thread.NewThread) { n.Message = "hello" })
		rest(ctx, w, id)
		first := busy(ctx, id, "work", 5)
		_, err := queue(ctx, e, id, "instead", skeinv1.RunPolicyRollback)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() ([]store.Run, error) { return w.Runs(ctx, id) }).Should(HaveLen(3))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: hello", "assistant: echo: hello", "user: instead", "assistant: echo: instead"}))
		r, err := w.Store.Run(ctx, id, first.ID)
		Expect(err).NotTo(HaveOccurred())
		Expect(r).To(HaveValue(And(HaveField("Status", store.RunStopped), HaveField("Reason", skeinv1.ReasonRolledBack),
			HaveField("Message", And(HavePrefix("3 messages were taken back"), ContainSubstring("set_value ("))))))
		Expect(w.Store.Value(ctx, id, "k")).To(MatchJSON(`1`))
		events, err := w.Store.Events(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		var found bool
		for _, ev := range events {
			if ev.Type == store.EventRunRolledBack {
				found = true
				var d map[string]any
				Expect(json.Unmarshal(ev.Data, &d)).To(Succeed())
				Expect(d["calls"]).To(ConsistOf(And(HaveKeyWithValue("name", "set_value"), HaveKeyWithValue("status", "success"))))
			}
		}
		Expect(found).To(BeTrue())
	})

	It("meets the policy of the agent when it brings none", func(ctx SpecContext) {
		w.Definitions.Put("strict", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}), func(a *definition.Agent) { a.Spec.RunPolicy = skeinv1.RunPolicyReject })
		e, _ := start(w)
		id := makeThread(ctx, w, "strict")
		busy(ctx, id, "hang", 1)
		_, err := queue(ctx, e, id, "more", "")
		Expect(err).To(MatchError(store.ErrRunning))
		_, err = queue(ctx, e, id, "more", skeinv1.RunPolicyEnqueue)
		Expect(err).NotTo(HaveOccurred())
	})

	It("keeps a parent waiting for the answer to it", Label("SUB-04"), func(ctx SpecContext) {
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "agent"}, Description: "helps", Blocking: true}}
		}, enginetest.Script(enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "hang"}), enginetest.Say("saw {{.Last.Content}}")))
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		var child string
		Eventually(func(g Gomega) {
			children, err := w.Store.Children(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(children).To(HaveLen(1))
			child = children[0].ID
			g.Expect(w.Store.Run(ctx, child, "")).To(HaveField("Status", store.RunRunning))
			g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting))
		}).Should(Succeed())
		_, err := queue(ctx, e, child, "instead", skeinv1.RunPolicyInterrupt)
		Expect(err).NotTo(HaveOccurred())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		lines := told(ctx, w, id)
		Expect(lines[len(lines)-1]).To(Equal("assistant: saw echo: instead"))
	})
})

var _ = Describe("Cancelling a run", Label("RUN-10"), func() {
	It("ends that run and nothing else", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("agent", enginetest.Script(
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "hang"}, Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)},
			enginetest.Say("echo: {{.Last.Content}}")))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "one")
		old := rest(ctx, w, id)
		send(ctx, w, id, "hang")
		Eventually(func() store.RunStatus { return lastRun(ctx, w, id).Status }).Should(Equal(store.RunRunning))
		run := lastRun(ctx, w, id)
		send(ctx, w, id, "waits")
		Expect(e.CancelRun(ctx, id, old.ID, "")).To(Succeed(), "it has ended already")
		Expect(w.Store.Run(ctx, id, old.ID)).To(HaveField("Status", store.RunSucceeded))
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunRunning))
		Expect(e.CancelRun(ctx, id, "sess_none", "")).To(MatchError(store.ErrNotFound))

		Expect(e.CancelRun(ctx, id, run.ID, "no more")).To(Succeed())
		Expect(w.Store.Run(ctx, id, run.ID)).To(And(HaveField("Status", store.RunStopped), HaveField("Reason", skeinv1.ReasonCancelled), HaveField("Message", "no more")))
		Eventually(func() ([]store.Run, error) { return w.Runs(ctx, id) }).Should(HaveLen(3))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: one", "assistant: echo: one", "user: hang", "assistant: (cancelled by user)", "user: waits", "assistant: echo: waits"}))
	})

	It("ends one that waits, though another replica holds its lease", Label("RUN-04"), func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(enginetest.Call("set_value", map[string]any{"key": "k", "value": 1})))
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		var fence *store.Fence
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting))
			var err error
			fence, err = w.Store.Acquire(ctx, id, "other", hour) // to tell its hooks of something, say
			g.Expect(err).NotTo(HaveOccurred())
		}).Should(Succeed())
		Expect(e.Stop(ctx, id, "no")).To(Succeed())
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunStopped))
		Expect(w.Store.Renew(ctx, fence, hour)).To(MatchError(store.ErrFenced))
	})

	It("ends the children that it waits for with it, which then say nothing", Label("RUN-04", "SUB-04"), func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			for _, blocking := range []bool{true, false} {
				a.Spec.Subagents = append(a.Spec.Subagents, skeinv1.AgentSubagent{
					Name: map[bool]string{true: "helper", false: "loner"}[blocking], AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: blocking, Resumable: true})
			}
		}, enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
			enginetest.ToolCall("subagent_create", map[string]any{"agent": "loner", "message": "x"}),
			enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "x"})}}, enginetest.Say("re: {{.Last.Content}}")))
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		status := func(g Gomega) map[string]store.RunStatus {
			children, err := w.Store.Children(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			out := map[string]store.RunStatus{}
			for _, c := range children {
				r, err := w.Store.Run(ctx, c.ID, "")
				g.Expect(err).NotTo(HaveOccurred())
				out[c.Child.Name] = r.Status
			}
			return out
		}
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting))
			g.Expect(status(g)).To(Equal(map[string]store.RunStatus{"helper": store.RunRunning, "loner": store.RunRunning}))
		}).Should(Succeed())
		Expect(e.CancelRun(ctx, id, lastRun(ctx, w, id).ID, "")).To(Succeed())
		Expect(status(NewGomega(Fail))).To(Equal(map[string]store.RunStatus{"helper": store.RunStopped, "loner": store.RunRunning}), "what works on its own goes on")
		Expect(w.Store.Inbox(ctx, id)).To(BeEmpty())
		Expect(w.Runs(ctx, id)).To(HaveLen(1))
	})
})

var _ = Describe("A message that takes the place of a run that waits for a child", Label("RUN-09", "RUN-04"), func() {
	It("ends the child's run too, also when the engine that took the message crashes", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true, Resumable: true}}
		}, enginetest.Script(enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "x"}), enginetest.Say("re: {{.Last.Content}}")))
		start(w)
		o := w.Options()
		o.Faults = func(point string) {
			if point == "stop.after" {
				panic("crash")
			}
		}
		dying, err := engine.New(o) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		for _, policy := range []skeinv1.RunPolicy{skeinv1.RunPolicyInterrupt, skeinv1.RunPolicyRollback} {
			id := makeThread(ctx, w, "parent")
			send(ctx, w, id, "go")
			var child string
			Eventually(func(g Gomega) {
				g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting))
				children, err := w.Store.Children(ctx, id)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(children).To(HaveLen(1))
				child = children[0].ID
				g.Expect(w.Store.Run(ctx, child, "")).To(HaveField("Status", store.RunRunning))
			}).Should(Succeed())
			t, err := w.Store.Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			text := "instead"
			Expect(func() { _, _ = dying.Queue(ctx, st, t, thread.NewMessage{Content: &text}, policy) }).To(PanicWith("crash"))
			Eventually(func(g Gomega) {
				g.Expect(w.Store.Run(ctx, child, "")).To(HaveField("Status", store.RunStopped), string(policy))
			}).Should(Succeed())
		}
	})
})
