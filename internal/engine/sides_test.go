package engine_test

import (
	"context"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// sided is told, with the side that wrote each message in front.
func sided(ctx context.Context, w *enginetest.World, id string) []string {
	GinkgoHelper()
	msgs, err := w.Messages(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	lines := told(ctx, w, id)
	for i := range lines {
		if msgs[i].Side != "" {
			lines[i] = msgs[i].Side + " " + lines[i]
		}
	}
	return lines
}

// ofSide changes the rules of a side.
func ofSide(change func(*skeinv1.AgentSide)) func(*definition.Agent) {
	return func(a *definition.Agent) { change(&a.A.Spec) }
}

func turnsAtMost(n int32) func(*definition.Agent) {
	return func(a *definition.Agent) { a.Spec.MaxSessionTurns = n }
}

var _ = Describe("An agent with two sides", Label("AGT-02"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	play := func(ctx context.Context, change ...func(*definition.Agent)) (string, store.Run) {
		GinkgoHelper()
		w.Definitions.Put("a", change...)
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		return id, rest(ctx, w, id)
	}

	It("has its sides take turns until the session had as many as it may", func(ctx SpecContext) {
		id, run := play(ctx, enginetest.Script(enginetest.Say("a heard {{.Last.Content}}")), turnsAtMost(3),
			enginetest.Dual(enginetest.Script(enginetest.Say("b heard {{.Last.Content}}"))))
		Expect(sided(ctx, w, id)).To(Equal([]string{
			"user: go", "a assistant: a heard go", "b assistant: b heard a heard go", "a assistant: a heard b heard a heard go"}))
		Expect(run).To(And(HaveField("Status", store.RunSucceeded), HaveField("Reason", skeinv1.ReasonMaxSessionTurnsReached),
			HaveField("Message", ContainSubstring("had 3 turns")), HaveField("Steps", 3)))
		Expect(eventsOf(ctx, w, id, store.EventTurnEnded)).To(HaveExactElements(
			MatchJSON(`{"side":"a","turn":1,"next":"b"}`), MatchJSON(`{"side":"b","turn":2,"next":"a"}`)))

		By("beginning a new session with the next message, by side a")
		send(ctx, w, id, "more")
		Expect(rest(ctx, w, id).ID).NotTo(Equal(run.ID))
		Expect(sided(ctx, w, id)[4:]).To(HaveExactElements("user: more", "a assistant: a heard more", HavePrefix("b assistant: b heard a heard more"), HavePrefix("a assistant: ")))
	})

	It("has a limit for those that do not say", func(ctx SpecContext) {
		_, run := play(ctx, enginetest.Script(enginetest.Say("x")), enginetest.Dual(enginetest.Script(enginetest.Say("y"))))
		Expect(run).To(And(HaveField("Steps", 50), HaveField("Reason", skeinv1.ReasonMaxSessionTurnsReached)))
	})

	It("shows each side the other as a user, and nothing of its calls, thoughts and prompt", func(ctx SpecContext) {
		seen := &twoSided{}
		w.Models = seen
		play(ctx, enginetest.Builtin(skeinv1.BuiltinKV), turnsAtMost(3), ofSide(func(s *skeinv1.AgentSide) { s.Label = "The author" }),
			enginetest.Dual(enginetest.Builtin(skeinv1.BuiltinKV), func(a *definition.Agent) { a.A.Prompt.Spec.Text = "You are a critic." }))
		last := seen.last()
		Expect(last["a"]).To(Equal([]string{"system: You are a test.", "user: go", "assistant: first ->get_value", "tool: null", "assistant: a says", "user: first", "user: b says"}))
		Expect(last["a-b"]).To(Equal([]string{"system: You are a critic.", "user: go", "user The_author: first", "user The_author: a says", "assistant: first ->get_value", "tool: null"}))
	})

	It("ends a side's turn by its own rules, and hands the answer over", func(ctx SpecContext) {
		seen := &spy{factory: w.Models}
		w.Models = seen
		id, run := play(ctx, enginetest.Builtin(skeinv1.BuiltinKV), turnsAtMost(4),
			ofSide(func(s *skeinv1.AgentSide) {
				s.StopOnResponse, s.StopTool, s.StopToolResponseProperty = ptr.To(false), "set_value", "value"
			}),
			enginetest.Script(skeinv1.ScriptStep{Content: "thinking"}, enginetest.Call("set_value", map[string]any{"key": "k", "value": "a's answer"}), enginetest.Say("never")),
			enginetest.Dual(enginetest.Script(enginetest.Say("b heard {{.Last.Content}}")), ofSide(func(s *skeinv1.AgentSide) { s.SessionStop = &skeinv1.SessionTool{Name: "finish"} }),
				func(a *definition.Agent) {
					a.A.Model.Steps = []skeinv1.ScriptStep{
						{ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("finish", map[string]any{"message": "agreed on {{.Last.Content}}"})}}}
				}))
		Expect(sided(ctx, w, id)).To(HaveExactElements("user: go", "a assistant: thinking", "a assistant ->set_value", HavePrefix("a tool set_value success"), "a assistant: a's answer",
			"b assistant ->finish", "b tool finish success: noted", "b assistant: agreed on a's answer"))
		Expect(run).To(And(HaveField("Status", store.RunSucceeded), HaveField("Reason", "")))
		Expect(seen.tools("a", 0)).To(ConsistOf("get_value", "set_value"))
		Expect(seen.tools("a-b", 0)).To(ConsistOf("finish"))
	})

	It("fails the session, not the thread", func(ctx SpecContext) {
		id, run := play(ctx, enginetest.Script(enginetest.Say("a: {{.Last.Content}}")), enginetest.Dual(
			ofSide(func(s *skeinv1.AgentSide) { s.SessionFail = &skeinv1.SessionTool{Name: "give_up"} }),
			enginetest.Script(enginetest.Call("give_up", map[string]any{"message": "no way"}), enginetest.Call("give_up", map[string]any{"message": "again"}))))
		Expect(run).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonSessionFailed), HaveField("Message", "no way")))
		send(ctx, w, id, "try")
		Expect(rest(ctx, w, id)).To(HaveField("Message", "again"))
		lines := sided(ctx, w, id)
		Expect(lines[5:]).To(Equal([]string{"user: try", "a assistant: a: try", "b assistant ->give_up", "b tool give_up success: noted", "b assistant: again"}))
	})

	It("counts the steps of each turn", func(ctx SpecContext) {
		loop := skeinv1.ScriptStep{Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("get_value", map[string]any{"key": "k"})}}
		_, run := play(ctx, ofSide(func(s *skeinv1.AgentSide) { s.MaxSteps = 2 }), enginetest.Script(enginetest.Say("x")),
			enginetest.Dual(enginetest.Builtin(skeinv1.BuiltinKV), ofSide(func(s *skeinv1.AgentSide) { s.MaxSteps = 4 }), enginetest.Script(skeinv1.ScriptStep{Content: "y"}, loop)))
		Expect(run).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonMaxStepsReached),
			HaveField("Message", HavePrefix("the turn made 4 model calls")), HaveField("Steps", 7)), "1 of a, 1 of b, 1 of a, 4 of b")
	})

	It("tells the parent of a turn limit, with what was said last", Label("SUB-04"), func(ctx SpecContext) {
		w.Definitions.Put("child", turnsAtMost(2), enginetest.Script(enginetest.Say("a")), enginetest.Dual(enginetest.Script(enginetest.Say("b heard {{.Last.Content}}"))))
		id, _ := play(ctx, enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "pair", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true, MaxInstances: 1}}
		}, enginetest.Script(enginetest.Call("subagent_create", map[string]any{"agent": "pair", "message": "talk"}), enginetest.Say("done")))
		Expect(told(ctx, w, id)).To(ContainElement(
			"tool subagent_create success: b heard a\n[the session had 2 turns, which is its limit (maxSessionTurns)]"))
	})
})

// twoSided is a model whose first answer calls a tool, and that keeps what each side was last asked.
type twoSided struct {
	mu    sync.Mutex
	asked map[string][]string
}

func (m *twoSided) last() map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *twoSided) Client(c model.Config) (model.Client, error) {
	return &twoSidedClient{of: m, name: c.Name}, nil
}

type twoSidedClient struct {
	of   *twoSided
	name string
}

func (c *twoSidedClient) Stream(_ context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	var lines []string
	called := false
	for _, m := range req.Messages {
		line := string(m.Role)
		if m.Name != "" && m.Role == model.RoleUser {
			line += " " + m.Name
		}
		line += ": " + m.Content
		for _, call := range m.ToolCalls {
			called = true
			line += " ->" + call.Name
		}
		lines = append(lines, line)
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.asked == nil {
		c.of.asked = map[string][]string{}
	}
	c.of.asked[c.name] = lines
	if !called {
		return &model.Response{Content: "first", Reasoning: "a thought of " + c.name, ToolCalls: []model.ToolCall{{ID: "call", Name: "get_value", Arguments: `{"key":"k"}`}}}, nil
	}
	return &model.Response{Content: map[string]string{"a": "a says", "a-b": "b says"}[c.name], Reasoning: "a thought of " + c.name}, nil
}

var _ = Describe("The code of two sides", Label("RUN-03"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})

	play := func(ctx context.Context, change ...func(*definition.Agent)) (string, store.Run) {
		GinkgoHelper()
		w.Definitions.Put("a", change...)
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		return id, rest(ctx, w, id)
	}
	show := `export default async (state) => { const x = state.execution;
		return [x.currentSide, x.stepCount, x.sideAStepCount, x.sideBStepCount, x.stopped, x.stoppedBy ?? null, x.promptPath, x.messageHistory.map((m) => m.side ?? '-').join('')] }`

	It("sees whose turn it is and how many steps each side has made", func(ctx SpecContext) {
		id, _ := play(ctx, turnsAtMost(3), codeTool("t", show), enginetest.Script(enginetest.Call("t", nil), skeinv1.ScriptStep{Content: "x"}, enginetest.Call("t", nil), enginetest.Say("z")),
			enginetest.Dual(codeTool("t", show), enginetest.Script(enginetest.Call("t", nil), enginetest.Say("y"))))
		var got []string
		for _, line := range sided(ctx, w, id) {
			if strings.Contains(line, "tool t") {
				got = append(got, line)
			}
		}
		Expect(got).To(Equal([]string{
			`a tool t success: ["a",1,1,0,false,null,["a"],"-a"]`,
			`b tool t success: ["b",3,2,1,false,null,["a-b"],"-aaab"]`,
			`a tool t success: ["a",5,3,2,false,null,["a"],"-aaabbba"]`}))
	})

	It("gives the next turn to either side", func(ctx SpecContext) {
		force := func(name, side string) func(*definition.Agent) {
			return codeTool(name, `export default (state) => { state.execution.forceTurn('`+side+`'); return 1 }`)
		}
		id, _ := play(ctx, turnsAtMost(5), force("again", "a"), force("pass", "b"),
			enginetest.Script(enginetest.Call("again", nil), skeinv1.ScriptStep{Content: "a1"}, skeinv1.ScriptStep{Content: "a2"},
				enginetest.Call("pass", nil), enginetest.Say("never")),
			enginetest.Dual(enginetest.Script(enginetest.Say("b heard {{.Last.Content}}"))))
		Expect(sided(ctx, w, id)).To(Equal([]string{"user: go", "a assistant ->again", "a tool again success: 1", "a assistant: a1", "a assistant: a2", "b assistant: b heard a2",
			"a assistant ->pass", "a tool pass success: 1", "b assistant: b heard (the turn ended without a message)"}))
	})

	It("ends the session with stop()", func(ctx SpecContext) {
		id, run := play(ctx, enginetest.Script(enginetest.Say("a")), enginetest.Dual(
			codeTool("t", `export default (state) => { const x = state.execution; x.stop(); return [x.stopped, x.stoppedBy] }`),
			enginetest.Script(enginetest.Call("t", nil), enginetest.Say("never"))))
		Expect(sided(ctx, w, id)).To(Equal([]string{"user: go", "a assistant: a", "b assistant ->t", `b tool t success: [true,"b"]`}))
		Expect(run.Status).To(Equal(store.RunSucceeded))
	})

	It("queues calls of its own side's tools, which run although it gave the turn away", func(ctx SpecContext) {
		id, _ := play(ctx, turnsAtMost(3), enginetest.Script(enginetest.Say("a heard {{.Last.Content}}")), enginetest.Dual(
			codeTool("t", `export default async (state) => { await state.queueTool('u', {}); state.execution.forceTurn('a'); return 'queued' }`),
			codeTool("u", `export default (state) => state.execution.currentSide`),
			enginetest.Script(enginetest.Call("t", nil), enginetest.Say("never"))))
		Expect(sided(ctx, w, id)).To(Equal([]string{"user: go", "a assistant: a heard go", "b assistant ->t", "b tool t success: queued",
			"b assistant ->u", "b tool u success: b", "a assistant: a heard (the turn ended without a message)"}))
	})

	It("may be all that a side is: a handler talks with a prompt", Label("AGT-09"), func(ctx SpecContext) {
		id, run := play(ctx, turnsAtMost(4), enginetest.Script(enginetest.Say("a heard {{.Last.Content}}")),
			enginetest.Dual(handler(`export default createAgent('Shouter', { handler: async (ctx, input) => String(input).toUpperCase() });`, nil),
				func(a *definition.Agent) { a.A.Name = "b" }))
		Expect(sided(ctx, w, id)).To(Equal([]string{"user: go", "a assistant: a heard go", "b assistant: A HEARD GO", "a assistant: a heard A HEARD GO", "b assistant: A HEARD A HEARD GO"}))
		Expect(run.Reason).To(Equal(skeinv1.ReasonMaxSessionTurnsReached))
	})

	It("is told of what happens by the hooks of the prompt in use", Label("HOK-01"), func(ctx SpecContext) {
		of := func(owner string) func(*definition.Hook) { return func(h *definition.Hook) { h.Owner = owner } }
		emits := func(name skeinv1.HookName, as string) string {
			return `export default defineHook('` + string(name) + `', async (state, m) => { await state.emit('hook', '` + as + ` ' + (m.content ?? m.role)); });`
		}
		id, _ := play(ctx, turnsAtMost(2),
			hook(skeinv1.HookAfterCreateMessage, emits(skeinv1.HookAfterCreateMessage, "of a"), of("Prompt a")),
			hook(skeinv1.HookAfterSystemMessage, emits(skeinv1.HookAfterSystemMessage, "of all")),
			enginetest.Script(enginetest.Say("x")),
			enginetest.Dual(hook(skeinv1.HookAfterCreateMessage, emits(skeinv1.HookAfterCreateMessage, "of b"), of("Prompt b")),
				hook(skeinv1.HookAfterSystemMessage, emits(skeinv1.HookAfterSystemMessage, "of all")),
				hook(skeinv1.HookBeforeCreateMessage, `export default defineHook('before_create_message', async (state, m) => ({ ...m, content: 'b, put well' }));`, of("Prompt b")),
				enginetest.Script(enginetest.Say("y"))))
		Expect(sided(ctx, w, id)).To(Equal([]string{"user: go", "a assistant: x", "b assistant: b, put well"}))
		Expect(noted(ctx, w, id, "hook")).To(ConsistOf(`"of a go"`, `"of all You are a test."`, `"of a x"`, `"of all You are the other side of a test."`, `"of b b, put well"`))
		Expect(failures(ctx, w, id)).To(BeEmpty())
	})
})
