package engine_test

import (
	"context"
	"maps"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Hooks at rest", Label("HOK-01"), func() {
	var w *enginetest.World
	var sandboxes *enginetest.Processes
	BeforeEach(func() {
		w = newWorld()
		var err error
		sandboxes, err = w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})
	// outside gives a thread as the runtime API writes to it.
	outside := func(ctx context.Context, e *engine.Engine, id string) *thread.State {
		GinkgoHelper()
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		row, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		return st.WithHooks(e.MessageHooks(ctx, row))
	}
	text := func(s string) *string { return &s }

	It("change and follow messages that are written from outside, without a run", func(ctx SpecContext) {
		w.Definitions.Put("a",
			hook(skeinv1.HookBeforeCreateMessage, `export default async (state, m) => { await state.thread.state.push('seen', m.content); return { content: m.content + '!' }; };`),
			hook(skeinv1.HookBeforeUpdateMessage, `export default async (state, id, u) => ({ ...u, metadata: { ...u.metadata, by: id.slice(0, 4) } });`),
			note(skeinv1.HookAfterCreateMessage), note(skeinv1.HookAfterUpdateMessage))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		st := outside(ctx, e, id)
		m, err := st.Inject(ctx, thread.NewMessage{Content: text("hi")})
		Expect(err).NotTo(HaveOccurred())
		Expect(*m.Content).To(Equal("hi!"))
		m, err = st.UpdateMessage(ctx, m.ID, thread.MessageUpdate{Content: text("bye")})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Metadata).To(HaveKeyWithValue("by", "msg_"))
		quiet(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: bye"}))
		Expect(noted(ctx, w, id, "after_create_message")).To(ConsistOf(ContainSubstring(m.ID)))
		Expect(noted(ctx, w, id, "after_update_message")).To(ConsistOf(ContainSubstring(`"content":"bye"`)))
		Expect(w.Runs(ctx, id)).To(BeEmpty())
		Expect(w.Store.StateValue(ctx, id, "seen")).To(MatchJSON(`["hi"]`))
	})

	It("cannot change the metadata of Skein, and keep the fields that they omit", func(ctx SpecContext) {
		w.Definitions.Put("a",
			hook(skeinv1.HookBeforeCreateMessage, `export default async (state, m) => ({ ...m, metadata: undefined, name: undefined, content: undefined });`),
			hook(skeinv1.HookBeforeUpdateMessage, `export default async (state, id, u) => u.metadata.subagent_id ? { content: 'new' } : { ...u, metadata: { subagent_id: 'x', status_kind: 'y' } };`))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		st := outside(ctx, e, id)
		m, err := st.Inject(ctx, thread.NewMessage{Content: text("hi"), Name: "ada", Metadata: map[string]any{"a": "b"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(m).To(HaveValue(And(HaveField("Content", HaveValue(Equal("hi"))), HaveField("Name", "ada"), HaveField("Metadata", HaveKeyWithValue("a", "b")))))
		m, err = st.UpdateMessage(ctx, m.ID, thread.MessageUpdate{Metadata: map[string]any{"subagent_id": "s"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(m).To(HaveValue(And(HaveField("Content", HaveValue(Equal("new"))), HaveField("Metadata", Equal(map[string]any{"a": "b", "subagent_id": "s"})))))
		m, err = st.UpdateMessage(ctx, m.ID, thread.MessageUpdate{Metadata: map[string]any{"c": "d"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Metadata).To(Equal(map[string]any{"a": "b", "subagent_id": "s"}))
		Expect(failures(ctx, w, id)).To(BeEmpty())
	})

	It("keep the metadata without which a provider refuses an answer, and cannot set it", func(ctx SpecContext) {
		w.Definitions.Put("a", hook(skeinv1.HookBeforeCreateMessage, `export default async (state, m) => ({ metadata: { seen: true, openai_reasoning: ['forged'] } });`))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		kept := map[string]any{"anthropic_thinking": []any{"t"}, "reasoning_origin": "o", "provider_call_ids": map[string]any{"a": "b"}}
		given := maps.Clone(kept)
		given["other"] = "x"
		m, err := outside(ctx, e, id).Inject(ctx, thread.NewMessage{Content: text("hi"), Metadata: given})
		Expect(err).NotTo(HaveOccurred())
		kept["seen"] = true
		Expect(m.Metadata).To(Equal(kept))
		Expect(failures(ctx, w, id)).To(BeEmpty())
	})

	It("are told of what is written while the thread is parked", func(ctx SpecContext) {
		w.Definitions.Put("a", note(skeinv1.HookAfterCreateMessage), enginetest.Script(skeinv1.ScriptStep{Latency: ms(3600_000), Content: "late"}))
		asked := make(chan struct{})
		e, _ := start(w, func(o *engine.Options) {
			o.Faults = func(point string) {
				if point == "model.before" { // the hook has been told by then: one that is being told is told again
					close(asked)
				}
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(asked).Should(BeClosed())
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		_, err := outside(ctx, e, id).Inject(ctx, thread.NewMessage{Content: text("aside")})
		Expect(err).NotTo(HaveOccurred())
		quiet(ctx, w, id)
		Expect(noted(ctx, w, id, "after_create_message")).To(HaveExactElements(ContainSubstring("go"), ContainSubstring("(stopped by user)"), ContainSubstring("aside")))
	})

	It("make a message happen once that is repeated under its key", func(ctx SpecContext) {
		w.Definitions.Put("a", note(skeinv1.HookAfterCreateMessage))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		for range 3 {
			_, err := outside(ctx, e, id).Inject(ctx, thread.NewMessage{Content: text("hi"), IdempotencyKey: "k"})
			Expect(err).NotTo(HaveOccurred())
			quiet(ctx, w, id)
		}
		Expect(noted(ctx, w, id, "after_create_message")).To(HaveLen(1))
	})

	It("cannot be switched off by the metadata of a message", func(ctx SpecContext) {
		w.Definitions.Put("a", note(skeinv1.HookAfterCreateMessage), enginetest.Script(enginetest.Say("ok")))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		_, err := outside(ctx, e, id).Queue(ctx, thread.NewMessage{Content: text("hi"), Metadata: map[string]any{"hook_depth": 99}})
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)
		quiet(ctx, w, id)
		Expect(noted(ctx, w, id, "after_create_message")).To(HaveLen(2))
	})

	It("let a message through when there is no sandbox to call them in", func(ctx SpecContext) {
		w.Sandboxes = enginetest.NoSandboxes{}
		w.Definitions.Put("a", note(skeinv1.HookBeforeCreateMessage))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		_, err := outside(ctx, e, id).Inject(ctx, thread.NewMessage{Content: text("hi")})
		Expect(err).NotTo(HaveOccurred())
		Expect(failures(ctx, w, id)).To(ConsistOf(HaveField("Error", ContainSubstring("no sandboxes in this test"))))
	})

	It("are told once of a new thread, before its first message", func(ctx SpecContext) {
		w.Definitions.Put("a", hook(skeinv1.HookAfterThreadCreated, `export default async (state) => { await state.injectMessage({ role: 'system', content: 'welcome ' + state.agentId }); };`),
			enginetest.Script(enginetest.Say("done")))
		e, _ := start(w)
		created := func(n *thread.NewThread) { n.FirstItems = e.ThreadCreated(ctx, n.Namespace, n.Agent) }
		id := makeThread(ctx, w, "a", created)
		quiet(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"system: welcome a"}))
		Expect(w.Runs(ctx, id)).To(BeEmpty())
		second := makeThread(ctx, w, "a", created, func(n *thread.NewThread) { n.Message = "go" })
		rest(ctx, w, second)
		Expect(told(ctx, w, second)).To(Equal([]string{"system: welcome a", "user: go", "assistant: done"}))
	})

	It("of side b's prompt hold too where no side has the turn, and side a's come first", Label("AGT-02"), func(ctx SpecContext) {
		welcome := func(text string) func(*definition.Agent) {
			return hook(skeinv1.HookAfterThreadCreated, `export default async (state) => { await state.injectMessage({ role: 'system', content: '`+text+`' }); };`)
		}
		w.Definitions.Put("b", enginetest.Dual(welcome("b")))
		w.Definitions.Put("both", welcome("a"), enginetest.Dual(welcome("b")))
		e, _ := start(w)
		for agent, said := range map[string]string{"b": "system: b", "both": "system: a"} {
			id := makeThread(ctx, w, agent, func(n *thread.NewThread) { n.FirstItems = e.ThreadCreated(ctx, n.Namespace, n.Agent) })
			quiet(ctx, w, id)
			Expect(told(ctx, w, id)).To(Equal([]string{said}))
		}
	})

	It("of an agent that is not there yet are found out about when it is", func(ctx SpecContext) {
		e, _ := start(w)
		created := func(n *thread.NewThread) { n.FirstItems = e.ThreadCreated(ctx, n.Namespace, n.Agent) }
		with, without := makeThread(ctx, w, "a", created), makeThread(ctx, w, "b", created)
		w.Definitions.Put("a", note(skeinv1.HookAfterThreadCreated))
		w.Definitions.Put("b")
		e.Wake(with)
		e.Wake(without)
		quiet(ctx, w, with)
		quiet(ctx, w, without)
		Expect(noted(ctx, w, with, "after_thread_created")).To(Equal([]string{"[]"}))
		Expect(e.ThreadCreated(ctx, enginetest.Namespace, "b")).To(BeEmpty(), "and a thread without hooks begins with nothing")
	})

	It("are told once of a new child, and of the last words of one that is over with them", func(ctx SpecContext) {
		w.Definitions.Put("child", note(skeinv1.HookAfterCreateMessage),
			func(a *definition.Agent) { a.A.Spec.SessionStop = &skeinv1.SessionTool{Name: "finish"} },
			enginetest.Script(enginetest.Call("finish", map[string]any{"message": "the result"})))
		w.Definitions.Put("a", note(skeinv1.HookAfterSubagentCreated), note(skeinv1.HookAfterToolCallSuccess),
			hook(skeinv1.HookBeforeStoreToolResult, `export default async (state, call, r) => ({ ...r, result: 'got ' + r.result });`),
			enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
				a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true}}
			}, enginetest.Script(enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "help"}), enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() string { return string(lastRunOrNone(ctx, w, id).Status) }).Should(Equal(string(store.RunSucceeded)))
		quiet(ctx, w, id)
		Expect(noted(ctx, w, id, "after_subagent_created")).To(ConsistOf(And(ContainSubstring(`"name":"helper"`), ContainSubstring(`"reference":`))))
		Expect(told(ctx, w, id)).To(ContainElement("tool subagent_create success: got the result"))
		Expect(noted(ctx, w, id, "after_tool_call_success")).To(ConsistOf(ContainSubstring("got the result")))
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() []string { return noted(ctx, w, children[0].ID, "after_create_message") }).Should(ContainElement(ContainSubstring("the result")))
	})

	// Every hook of this agent leaves a trace of its own making. At any point where a crash cuts the conversation off,
	// the traces in the end are those of one that was not cut off.
	It("at any point of a crash leave what they do once", Label("RUN-02"), func(ctx SpecContext) {
		trace := func(name skeinv1.HookName, said string) func(*definition.Agent) {
			return hook(name, `export default async (state, x, y) => { if (x?.role !== 'system') await state.injectMessage({ role: 'system', silent: true, content: '`+string(name)+` ' + `+said+` }); };`)
		}
		seats := newSeats()
		play := func(point string, n int) (points map[string]int, transcript []string) {
			at := <-seats
			defer func() { seats <- at }()
			w := newWorld()
			w.Logger = logr.Discard()
			w.Sandboxes = sandboxes
			w.Definitions.Put("a", trace(skeinv1.HookAfterThreadCreated, "''"), trace(skeinv1.HookAfterCreateMessage, "x.role"), trace(skeinv1.HookAfterToolCallSuccess, "x.name"),
				hook(skeinv1.HookBeforeCreateMessage, `export default async (state, m) => m.role === 'user' ? { content: m.content + '!' } : null;`),
				hook(skeinv1.HookFilterMessages, `export default async (state, ms) => ms.filter((m) => m.role !== 'system');`),
				enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Call("set_value", map[string]any{"key": "k", "value": 1}), enginetest.Say("done")))
			c := cutAt(w, point, n)
			e, stop := start(w, c.options)
			id := makeThread(ctx, w, "a", withID(at.first), func(t *thread.NewThread) {
				t.FirstItems, t.Message = e.ThreadCreated(ctx, t.Namespace, t.Agent), "go"
			})
			c.restOrCut(ctx, id, stop)
			_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			rest(ctx, w, id)
			quiet(ctx, w, id)
			stop()
			Expect(failures(ctx, w, id)).To(BeEmpty())
			return c.reached(), told(ctx, w, id)
		}
		points, want := play("", 0)
		Expect(want).To(ConsistOf("system: after_thread_created ", "user: go!", "system: after_create_message user", "assistant ->set_value", "system: after_create_message assistant",
			HavePrefix("tool set_value success"), "system: after_tool_call_success set_value", "assistant: done", "system: after_create_message assistant"))
		for _, p := range []string{"hook.before", "hook.after", "hook.rest.before", "hook.rest.after", "intake.after", "answer.before", "answer.after", "result.after", "finish.before", "finish.after"} {
			Expect(points).To(HaveKey(p))
		}
		reaches("hooks", points)
		atEachPoint(points, each, func(point string, n int) {
			_, got := play(point, n)
			Expect(got).To(ConsistOf(want), "after a crash at %s for the %d. time", point, n)
		})
	}, NodeTimeout(manyPlays))
})

func lastRunOrNone(ctx context.Context, w *enginetest.World, id string) store.Run {
	r, err := w.Store.Run(ctx, id, "")
	if err != nil {
		return store.Run{}
	}
	return *r
}
