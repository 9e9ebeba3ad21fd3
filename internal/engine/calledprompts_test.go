package engine_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A prompt as a tool", Label("AGT-05", "TOL-02"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	ask := func(message string) skeinv1.ScriptStep {
		return enginetest.Call("summarise", map[string]any{"message": message})
	}
	// within gives the messages of called prompts: "depth role: content".
	within := func(ctx SpecContext, id string) (out []string) {
		GinkgoHelper()
		page, err := w.Store.Messages(ctx, id, store.MessageQuery{Order: "asc", AllDepths: true, IncludeSilent: true, Limit: 100})
		Expect(err).NotTo(HaveOccurred())
		for _, m := range page.Messages {
			if m.Depth > 0 {
				Expect(m.ParentID).NotTo(BeEmpty())
				Expect(m.Metadata).To(HaveKey("prompt_call_id"))
				line := strings.Repeat(">", m.Depth) + string(m.Role)
				for _, c := range m.ToolCalls {
					line += " ->" + c.Name
				}
				if m.Content != nil {
					line += ": " + *m.Content
				}
				out = append(out, line)
			}
		}
		return out
	}

	It("works with its own model and tools within the run, and gives its answer", func(ctx SpecContext) {
		seen := &spy{factory: w.Models}
		w.Models = seen
		w.Definitions.Put("writer", enginetest.CallsPrompt("summarise", skeinv1.PromptTool{}, enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			enginetest.Call("set_value", map[string]any{"key": "seen", "value": true}), enginetest.Say("short"))),
			enginetest.Script(ask("a long text"), enginetest.Say("It says: {{.Last.Content}}.")))
		start(w)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect([]any{r.Status, r.Steps}).To(Equal([]any{store.RunSucceeded, 4}))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->summarise", "tool summarise success: short", "assistant: It says: short."}))
		Expect(within(ctx, id)).To(HaveExactElements(">user: a long text", ">assistant ->set_value", HavePrefix(">tool: "), ">assistant: short"))
		Expect(seen.tools("writer", 0)).To(ConsistOf("summarise"))
		Expect(seen.tools("summarise", 0)).To(ConsistOf("get_value", "set_value"))
		Expect(w.Runs(ctx, id)).To(HaveLen(1))
	})

	It("reads its message alone unless it is to read the chat, with or without its tools", func(ctx SpecContext) {
		for name, change := range map[string]func(*definition.Agent){
			"alone": func(*definition.Agent) {},
			"chat":  func(a *definition.Agent) { a.A.Prompt.Spec.IncludeChat = ptr.To(true) },
			"tools": func(a *definition.Agent) {
				a.A.Prompt.Spec.IncludeChat, a.A.Prompt.Spec.IncludePastTools = ptr.To(true), ptr.To(true)
			},
		} {
			m := newHeld()
			w.Models = m
			w.Definitions.Put(name, enginetest.Builtin(skeinv1.BuiltinKV), enginetest.CallsPrompt("summarise", skeinv1.PromptTool{}, change))
			_, stop := start(w)
			id := makeThread(ctx, w, name)
			send(ctx, w, id, "go")
			m.calls(name, "c1", "get_value", `{"key":"k"}`)
			m.calls(name, "c2", "summarise", `{"message":"this"}`)
			m.says("summarise", "short")
			m.says(name, "done")
			rest(ctx, w, id)
			Expect(m.read[2]).To(Equal(map[string][]string{
				"alone": {"user: this"},
				"chat":  {"user: go", "user: this"},
				"tools": {"user: go", "assistant ->get_value", "tool: null", "user: this"},
			}[name]), name)
			stop()
		}
	})

	It("calls another prompt, as deep as it may, and says so beyond", func(ctx SpecContext) {
		again := enginetest.Script(skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool"}, Times: ptr.To[int32](0), Content: "[{{.Last.Content}}]"},
			skeinv1.ScriptStep{Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("summarise", map[string]any{"message": "deeper"})}})
		itself := func(a *definition.Agent) {
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Prompt: "summarise"})
		}
		w.Definitions.Put("writer", enginetest.CallsPrompt("summarise", skeinv1.PromptTool{}, again, itself), again)
		start(w, func(o *engine.Options) { o.Limits.PromptDepth = 2 })
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)[2]).To(Equal("tool summarise success: [[prompts may call each other 2 levels deep, and this is level 2: do it yourself]]"))
		Expect(within(ctx, id)).To(ContainElement(HavePrefix(">>assistant: [prompts may call")))
	})

	It("that fails says why, or only that it did, and the conversation goes on", func(ctx SpecContext) {
		for _, hide := range []bool{false, true} {
			name := map[bool]string{false: "open", true: "closed"}[hide]
			w.Definitions.Put(name, enginetest.CallsPrompt("summarise", skeinv1.PromptTool{IncludeErrors: ptr.To(!hide)}, enginetest.Script(skeinv1.ScriptStep{Error: "no idea"})),
				enginetest.Script(ask("x"), enginetest.Say("never mind")))
		}
		start(w)
		for name, want := range map[string]string{"open": "tool summarise error: the prompt summarise failed: no idea", "closed": "tool summarise error: the prompt summarise failed"} {
			id := makeThread(ctx, w, name)
			send(ctx, w, id, "go")
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->summarise", want, "assistant: never mind"}))
		}
	})

	It("takes the argument that is named for the message, and reports its calls where that is asked for", func(ctx SpecContext) {
		ref := skeinv1.PromptTool{InitUserMessageProperty: "question", IncludeToolCalls: ptr.To(true), IncludeTextResponse: ptr.To(false)}
		required := func(a *definition.Agent) {
			a.A.Prompt.Spec.RequiredSchema = &runtime.RawExtension{Raw: []byte(`{"type":"object","required":["question"]}`)}
		}
		w.Definitions.Put("writer", enginetest.CallsPrompt("summarise", ref, required, enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			enginetest.Call("get_value", map[string]any{"key": "{{.Arguments.question}}"}), enginetest.Say("unused"))),
			enginetest.Script(enginetest.Call("summarise", map[string]any{"message": "no"}), enginetest.Call("summarise", map[string]any{"question": "why"}), enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->summarise", ContainSubstring("missing property 'question'"), "assistant ->summarise",
			"tool summarise success: [called get_value({\"key\":\"why\"})]\n[success] null", "assistant: done"))
		Expect(within(ctx, id)[0]).To(Equal(">user: why"))
	})

	It("keeps the order of results where calls are made at once", func(ctx SpecContext) {
		w.Definitions.Put("writer", func(a *definition.Agent) { a.A.Prompt.Spec.ParallelToolCalls = true }, enginetest.Builtin(skeinv1.BuiltinKV),
			enginetest.CallsPrompt("summarise", skeinv1.PromptTool{}, enginetest.Script(enginetest.Say("re: {{.Last.Content}}"))),
			enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("summarise", map[string]any{"message": "one"}), enginetest.ToolCall("get_value", map[string]any{"key": "k"}),
				enginetest.ToolCall("summarise", map[string]any{"message": "two"}),
			}}, enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->summarise ->get_value ->summarise", "tool summarise success: re: one",
			"tool get_value success: null", "tool summarise success: re: two", "assistant: done"}))
	})
})
