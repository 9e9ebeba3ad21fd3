package engine_test

import (
	"encoding/json"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/skill"
)

var _ = Describe("A skill", Label("AGT-08"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	values := skill.Skill{Name: "values", Description: "Keeps values.", Instructions: "Set k.", Parameters: json.RawMessage(`{"type":"object","properties":{"depth":{"type":"integer"}}}`)}
	activate := func(args map[string]any) skeinv1.ScriptToolCall {
		in := map[string]any{"name": "values"}
		if args != nil {
			in["arguments"] = args
		}
		return enginetest.ToolCall("skill", in)
	}
	set := func(value int) skeinv1.ScriptToolCall {
		return enginetest.ToolCall("set_value", map[string]any{"key": "k", "value": value})
	}
	calls := func(calls ...skeinv1.ScriptToolCall) skeinv1.ScriptStep { return skeinv1.ScriptStep{ToolCalls: calls} }
	active := func(ctx SpecContext, id string) []store.SkillActivation {
		GinkgoHelper()
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		return t.Fields.ActivatedSkills
	}
	const locked = `tool set_value error: set_value is there once the skill "values" is active: activate it by the tool skill, and call set_value in a step after that`

	It("is recorded once, with its arguments, and unlocks its tools from the next step on", func(ctx SpecContext) {
		seen := &spy{factory: w.Models}
		w.Models = seen
		w.Definitions.Put("a", enginetest.Skill(values, skeinv1.BuiltinKV), enginetest.Script(
			calls(activate(map[string]any{"depth": "two"}), set(1)), calls(activate(map[string]any{"depth": 2}), set(2)), calls(set(3)),
			calls(activate(map[string]any{"depth": 3})), calls(activate(nil)), enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go",
			"assistant ->skill ->set_value", And(HavePrefix("tool skill error: the arguments do not fit the skill values: /depth: "), HaveSuffix("Activate it again with these corrected")), locked,
			"assistant ->skill ->set_value", "tool skill success: Set k.", locked, // whose step had begun
			"assistant ->set_value", `tool set_value success: {"key":"k"}`,
			"assistant ->skill", "tool skill success: Set k.\n\n[The skill was active already: its arguments are {\"depth\":2}.]",
			"assistant ->skill", "tool skill success: Set k.", "assistant: done"))
		Expect(active(ctx, id)).To(Equal([]store.SkillActivation{{Name: "values", Arguments: json.RawMessage(`{"depth":2}`)}}))
		Expect([][]string{seen.tools("a", 0), seen.tools("a", 1), seen.tools("a", 2)}).To(Equal([][]string{{"skill"}, {"skill"}, {"get_value", "set_value", "skill"}}))
	})

	It("that is activated from outside the run counts from its next step on", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Skill(values, skeinv1.BuiltinKV), enginetest.Builtin(skeinv1.BuiltinFiles))
		var id string
		m := listening(w, func(call int, _ model.Request) *model.Response {
			defer GinkgoRecover()
			if call > 0 {
				return &model.Response{Content: "done"}
			}
			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			_, _, err = st.ActivateSkill(ctx, "values", nil)
			Expect(err).NotTo(HaveOccurred())
			return toolCall("list_files", `{}`)
		})
		e, _ := start(w)
		id = makeThread(ctx, w, "a")
		thread, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.CheckSkill(ctx, thread, store.SkillActivation{Name: "values", Arguments: json.RawMessage(`{"depth":"x"}`)})).To(ContainSubstring("/depth"))
		Expect(e.CheckSkill(ctx, thread, store.SkillActivation{Name: "another", Arguments: json.RawMessage(`{"depth":"x"}`)})).To(BeEmpty())
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		offered := func(i int) map[string]string {
			out := map[string]string{}
			for _, t := range m.requests()[i].Tools {
				out[t.Name] = t.Description
			}
			return out
		}
		Expect(offered(0)).To(And(Not(HaveKey("set_value")), HaveKeyWithValue("skill", ContainSubstring("\n- values: Keeps values."))))
		Expect(offered(1)).To(And(HaveKey("set_value"), HaveKeyWithValue("skill", ContainSubstring("\n- values (active): Keeps values."))))
	})

	It("unlocks no call of its own step, not by a called prompt either, so that what has to be approved is", Label("RUN-11"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.CallsPrompt("learner", skeinv1.PromptTool{}, enginetest.Skill(values, skeinv1.BuiltinKV),
			enginetest.Script(calls(activate(nil)), calls(set(1)), enginetest.Say("learnt"))),
			enginetest.Skill(values, skeinv1.BuiltinKV), func(a *definition.Agent) {
				tools := a.A.Prompt.Spec.Tools
				tools[len(tools)-1].RequiresApproval = true
			}, enginetest.Script(calls(enginetest.ToolCall("learner", map[string]any{"message": "learn"}), set(2)), calls(set(3))))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(lastRunOrNone).WithArguments(ctx, w, id).Should(And(HaveField("Status", store.RunWaiting), HaveField("Reason", skeinv1.ReasonWaitingForApproval)))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->learner ->set_value", "tool learner success: learnt", locked, "assistant ->set_value"}))
		Expect(w.Store.Value(ctx, id, "k")).To(MatchJSON("1"), "it was the called prompt's, which needs no approval")
	})

	It("is one for both sides, whose prompts say what it unlocks", Label("AGT-02"), func(ctx SpecContext) {
		files := skill.Skill{Name: "values", Description: "Keeps files.", Instructions: "Write."}
		w.Definitions.Put("a", func(a *definition.Agent) { a.Spec.MaxSessionTurns = 3 }, enginetest.Skill(values, skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("over to you")),
			enginetest.Dual(enginetest.Skill(files, skeinv1.BuiltinFiles), enginetest.Script(calls(enginetest.ToolCall("list_files", map[string]any{})), calls(activate(nil)), enginetest.Say("mine"))))
		seen := &spy{factory: w.Models}
		w.Models = seen
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant: over to you", "assistant ->list_files", ContainSubstring(`once the skill "values" is active`),
			"assistant ->skill", "tool skill success: Write.", "assistant: mine", "assistant: over to you"))
		Expect(seen.tools("a", 0)).To(ConsistOf("skill"))
		Expect(seen.tools("a", 1)).To(ConsistOf("skill", "get_value", "set_value"))
		Expect(seen.tools("a-b", 2)).To(ContainElements("skill", "list_files"))
	})

	It("is recorded once, and has one result, whenever the engine dies", Label("RUN-02"), func(ctx SpecContext) {
		play := func(point string) {
			w := newWorld()
			w.Logger = logr.Discard() // crashes are loud
			w.Definitions.Put("a", enginetest.Skill(values, skeinv1.BuiltinKV), enginetest.Script(calls(activate(map[string]any{"depth": 2})), calls(set(1)), enginetest.Say("done")))
			c := cutAt(w, point, 1)
			_, stop := start(w, c.options)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			Eventually(c.cut).Should(BeClosed())
			stop()
			Expect(c.gate.Expire(ctx)).To(Succeed())
			start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			rest(ctx, w, id)
			Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->skill", "tool skill success: Set k.", "assistant ->set_value", `tool set_value success: {"key":"k"}`, "assistant: done"}), point)
			t, err := w.Store.Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(t.Fields.ActivatedSkills).To(HaveLen(1), point)
		}
		for _, point := range []string{"call.before", "call.after", "result.before", "result.after"} {
			play(point)
		}
	})
})
