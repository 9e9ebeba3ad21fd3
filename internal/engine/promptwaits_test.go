package engine_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A call of a called prompt that waits", Label("AGT-05", "RUN-10", "RUN-11"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	ask := func(prompt, message string) skeinv1.ScriptToolCall {
		return enginetest.ToolCall(prompt, map[string]any{"message": message})
	}
	set := func(key string) skeinv1.ScriptToolCall {
		return enginetest.ToolCall("set_value", map[string]any{"key": key, "value": "{{.Last.Content}}"})
	}
	calls := func(cs ...skeinv1.ScriptToolCall) skeinv1.ScriptStep { return skeinv1.ScriptStep{ToolCalls: cs} }
	helper := func(a *definition.Agent) {
		a.Spec.Subagents = []skeinv1.AgentSubagent{{
			Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true,
			ParentCommunication: skeinv1.CommunicationImplicit, MaxInstances: 10,
		}}
	}
	// log gives all messages: "depth role name: content".
	log := func(ctx SpecContext, id string) (out []string) {
		GinkgoHelper()
		page, err := w.Store.Messages(ctx, id, store.MessageQuery{Order: "asc", AllDepths: true, IncludeSilent: true, Limit: 100})
		Expect(err).NotTo(HaveOccurred())
		for _, m := range page.Messages {
			if m.Role == store.RoleSystem {
				continue
			}
			line := strings.Repeat(">", m.Depth) + string(m.Role)
			if m.Name != "" {
				line += " " + m.Name
			}
			for _, c := range m.ToolCalls {
				line += " ->" + c.Name
			}
			if m.Content != nil {
				line += ": " + *m.Content
			}
			out = append(out, line)
			if m.Depth > 0 {
				Expect(m.ParentID).NotTo(BeEmpty())
				Expect(m.Metadata).To(HaveKey("prompt_call_id"))
			}
		}
		return out
	}
	// waiting gives the run once it waits, for that reason.
	waiting := func(ctx SpecContext, id, reason string) *store.Run {
		GinkgoHelper()
		var r *store.Run
		Eventually(func(g Gomega) {
			var err error
			r, err = w.Store.Run(ctx, id, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r).To(And(HaveField("Status", store.RunWaiting), HaveField("Reason", reason)))
		}).Should(Succeed())
		Expect(w.Store.Runnable(ctx, 10)).NotTo(ContainElement(id), "nobody holds it, and there is nothing to do")
		return r
	}
	decide := func(ctx SpecContext, e *engine.Engine, id string, d store.Approval) {
		GinkgoHelper()
		list, _, err := e.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).NotTo(BeEmpty())
		_, err = e.Decide(ctx, id, list[0].ToolCallID, d)
		Expect(err).NotTo(HaveOccurred())
	}

	It("parks the run, which continues within nested prompts on any replica", func(ctx SpecContext) {
		clock := &shifted{}
		seen := &spy{factory: w.Models}
		w.Models = seen
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("checked {{.Last.Content}}")))
		deep := enginetest.CallsPrompt("deep", skeinv1.PromptTool{}, enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Builtin(skeinv1.BuiltinSubagents),
			enginetest.Builtin(skeinv1.BuiltinWait), enginetest.Script(
				calls(set("k")), calls(enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "figures"})),
				calls(enginetest.ToolCall("wait", map[string]any{"delayMs": 3_600_000})), enginetest.Say("deep done")))
		outer := enginetest.CallsPrompt("outer", skeinv1.PromptTool{}, enginetest.Script(calls(ask("deep", "look")), enginetest.Say("re: {{.Last.Content}}")), func(a *definition.Agent) {
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Prompt: "deep"})
		})
		w.Definitions.Put("writer", helper, outer, deep, func(a *definition.Agent) {
			a.A.Prompt.Spec.Tools = []skeinv1.PromptTool{{Prompt: "outer"}} // deep is called by outer alone
		}, enginetest.Script(calls(ask("outer", "work")), enginetest.Say("all {{.Last.Content}}")))
		options := func(o *engine.Options) { o.Clock = clock }
		_, stop := start(w, options)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		r := waiting(ctx, id, skeinv1.ReasonWaitingForApproval)
		Expect(r.Message).To(ContainSubstring("calls wait for approval: set_value ("))
		Expect(r.Steps).To(Equal(3))
		stop()
		e, stop := start(w, options)
		decide(ctx, e, id, store.Approval{Approved: true, By: "ada"})
		Eventually(func() ([]store.Thread, error) { return w.Store.Children(ctx, id) }).Should(HaveLen(1))
		waiting(ctx, id, skeinv1.ReasonWaitingForTime)
		stop()
		// No engine runs meanwhile: the time alone would end the run before the message is there.
		clock.by.Add(int64(2 * time.Hour))
		send(ctx, w, id, "are you there?")
		start(w, options)
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunSucceeded), HaveField("Steps", 8)))
		Expect(log(ctx, id)).To(ConsistOf("user: go", "assistant ->outer", ">user: work", ">assistant ->deep", ">>user: look",
			">>assistant ->set_value", HavePrefix(">>tool set_value: "), ">>assistant ->subagent_create", ">>tool subagent_create: checked figures",
			">>assistant ->wait", ">>tool wait: the time is over", ">>assistant: deep done", ">tool deep: deep done", ">assistant: re: deep done",
			"tool outer: re: deep done", "user: are you there?", HavePrefix("assistant: all ")))
		Expect(w.Runs(ctx, id)).To(HaveLen(1))
		Expect(lastRun(ctx, w, id).State).NotTo(ContainSubstring("waits"))
	})

	It("tells the prompt about a refusal or a timeout", func(ctx SpecContext) {
		for name, d := range map[string]*store.Approval{"refused": {By: "bob", Reason: "no"}, "late": nil} {
			clock := &shifted{} // its timers are real, so that one that is set after the shift still fires
			w.Definitions.Put(name, enginetest.CallsPrompt("keep", skeinv1.PromptTool{}, enginetest.Approved(skeinv1.BuiltinKV, time.Hour),
				enginetest.Script(calls(set("k")), enginetest.Say("re: {{.Last.Content}}"))), enginetest.Script(calls(ask("keep", "it")), enginetest.Say("done")))
			e, stop := start(w, func(o *engine.Options) { o.Clock = clock })
			id := makeThread(ctx, w, name)
			send(ctx, w, id, "go")
			waiting(ctx, id, skeinv1.ReasonWaitingForApproval)
			if d != nil {
				decide(ctx, e, id, *d)
			} else {
				clock.by.Add(int64(2 * time.Hour))
			}
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(log(ctx, id)).To(ContainElement("tool keep: " + map[string]string{
				"refused": "re: the call was not made: bob refused it, saying: no",
				"late":    "re: the call was not made: no approval came in time. Do not repeat it unchanged; go on without it, or ask",
			}[name]))
			stop()
		}
	})

	It("fails with an error when the prompt was removed", func(ctx SpecContext) {
		writer := func(change ...func(*definition.Agent)) {
			w.Definitions.Put("writer", append(change, enginetest.Script(
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "user"}, Times: new(int32), ToolCalls: []skeinv1.ScriptToolCall{ask("keep", "it")}},
				enginetest.Say("saw: {{.Last.Content}}")))...)
		}
		writer(enginetest.CallsPrompt("keep", skeinv1.PromptTool{}, enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(calls(set("k")))))
		e, _ := start(w)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		waiting(ctx, id, skeinv1.ReasonWaitingForApproval)
		writer()
		decide(ctx, e, id, store.Approval{Approved: true, By: "ada"})
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(ContainElement(HavePrefix(`tool keep error: there is no tool "keep"`)))
		Expect(w.Store.Value(ctx, id, "k")).Error().To(MatchError(store.ErrNotFound))
	})

	It("lets the prompt continue when the call that it waits for is deleted", func(ctx SpecContext) {
		clock := &shifted{}
		writer := func(does skeinv1.ScriptStep) {
			w.Definitions.Put("writer", enginetest.CallsPrompt("keep", skeinv1.PromptTool{}, enginetest.Approved(skeinv1.BuiltinKV, time.Hour),
				enginetest.Script(does)), enginetest.Script(calls(ask("keep", "it")), enginetest.Say("done")))
		}
		writer(calls(set("k")))
		start(w, func(o *engine.Options) { o.Clock = clock })
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		waiting(ctx, id, skeinv1.ReasonWaitingForApproval)
		page, err := w.Store.Messages(ctx, id, store.MessageQuery{Order: "desc", AllDepths: true, Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveExactElements(And(HaveField("Depth", 1), HaveField("ToolCalls", HaveLen(1)))))
		Expect(w.Store.Apply(ctx, id, nil, &store.DeleteMessage{ID: page.Messages[0].ID})).To(Succeed())
		writer(enginetest.Say("went on")) // to what it reads now
		clock.by.Add(int64(2 * time.Hour))
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(ContainElement("tool keep success: went on"))
	})

	It("does not block parallel calls, in any order of decisions", func(ctx SpecContext) {
		w.Definitions.Put("writer", func(a *definition.Agent) { a.A.Prompt.Spec.ParallelToolCalls = true },
			enginetest.CallsPrompt("keep", skeinv1.PromptTool{}, enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "user"}, Times: new(int32), ToolCalls: []skeinv1.ScriptToolCall{set("k")}},
				enginetest.Say("kept"))),
			enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
				calls(ask("keep", "one"), enginetest.ToolCall("get_value", map[string]any{"key": "k"}), ask("keep", "two")), enginetest.Say("done")))
		e, _ := start(w)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		waiting(ctx, id, skeinv1.ReasonWaitingForApproval)
		list, _, err := e.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveExactElements(HaveField("Arguments", ContainSubstring("one")), HaveField("Arguments", ContainSubstring("two"))))
		for i := range list {
			_, err := e.Decide(ctx, id, list[len(list)-1-i].ToolCallID, store.Approval{Approved: true, By: "ada"})
			Expect(err).NotTo(HaveOccurred())
			if i == 0 {
				Eventually(func() []string { return told(ctx, w, id) }).Should(ContainElement("tool keep success: kept"))
			}
		}
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunSucceeded), HaveField("Steps", 6)))
		Expect(w.Store.Value(ctx, id, "k")).To(BeEquivalentTo(`"one"`))
	})

	It("ends with the run when that is stopped, the child that it waits for too", Label("RUN-04"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(calls(set("k"))))
		w.Definitions.Put("writer", helper, enginetest.CallsPrompt("delegate", skeinv1.PromptTool{}, enginetest.Builtin(skeinv1.BuiltinSubagents), enginetest.Script(
			calls(enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "figures"})))),
			enginetest.Script(calls(ask("delegate", "it")), enginetest.Say("again")))
		e, _ := start(w)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		waiting(ctx, id, "")
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		waiting(ctx, children[0].ID, skeinv1.ReasonWaitingForApproval)
		Expect(e.Stop(ctx, id, "")).To(Succeed())
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunStopped))
		Expect(lastRun(ctx, w, children[0].ID).Status).To(Equal(store.RunStopped))
		send(ctx, w, id, "go on")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->delegate", "assistant: (stopped by user)", "user: go on", "assistant: again"))
	})
})
