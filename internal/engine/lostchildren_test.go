package engine_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Subagents that never begin", func() {
	var w *enginetest.World
	parent := func(blocking bool, steps ...skeinv1.ScriptStep) func(*definition.Agent) {
		return func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: blocking, MaxInstances: 10}}
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: skeinv1.BuiltinSubagents})
			enginetest.Script(steps...)(a)
		}
	}
	create := enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "x"})
	BeforeEach(func() { w = newWorld() })

	It("are the call's error when the cluster refuses them", Label("SUB-03"), func(ctx SpecContext) {
		w.Children.Refuse = func(ports.ChildRequest) error { return errors.New("the cluster refuses the subagent: exceeded quota") }
		w.Definitions.Put("parent", parent(true, skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create}}, enginetest.Say("too bad")))
		start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->subagent_create",
			"tool subagent_create error: the cluster refuses the subagent: exceeded quota", "assistant: too bad"}))
	})

	It("are the call's error when they are deleted before their thread is stored, once", Label("SUB-08"), func(ctx SpecContext) {
		w.Children.Unmade = true
		w.Definitions.Put("parent", parent(true, skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create, create}}, enginetest.Say("too bad")))
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunWaiting))
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		waiting := lastRun(ctx, w, id)
		Expect(e.AnswerForLost(ctx, t, &waiting)).To(Succeed())
		Expect(w.Store.Inbox(ctx, id)).To(BeEmpty(), "they exist")
		w.Children.Delete(id)
		for range 2 {
			Expect(e.AnswerForLost(ctx, t, &waiting)).To(Succeed())
		}
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->subagent_create ->subagent_create",
			"tool subagent_create error: the subagent was deleted before it returned a result", "tool subagent_create error: the subagent was deleted before it returned a result", "assistant: too bad"}))
		Expect(w.Store.LivingChildren(ctx, enginetest.Namespace, id)).To(BeEmpty())
	})

	It("give their places back when a crash came before they were declared", Label("SUB-03"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("done")))
		w.Definitions.Put("parent", parent(true, skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create}}, enginetest.Say("{{.Last.Content}}")))
		later := &shifted{}
		later.by.Store(int64(hour))
		start(w, func(o *engine.Options) { o.Limits.Children, o.Clock = 1, later })
		id := makeThread(ctx, w, "parent")
		_, err := w.Store.ReserveChild(ctx, store.ChildTask{ID: "left", ParentID: id, Reference: "left", Namespace: enginetest.Namespace, Kind: "helper", Agent: "child"}, nil)
		Expect(err).NotTo(HaveOccurred())
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)[2]).To(Equal("tool subagent_create success: done"))
	})
})

var _ = Describe("Limits of subagents", Label("SUB-03"), func() {
	It("hold when twenty calls are made at once", func(ctx SpecContext) {
		for what, limit := range map[string]func(o *engine.Options, kind *skeinv1.AgentSubagent, child *definition.Agent){
			"this conversation has 3 subagents":                           func(o *engine.Options, _ *skeinv1.AgentSubagent, _ *definition.Agent) { o.Limits.Children = 3 },
			"there are 3 subagents helper at the same time":               func(_ *engine.Options, k *skeinv1.AgentSubagent, _ *definition.Agent) { k.MaxInstances = 3 },
			"namespace have 3 subagents of the agent child":               func(_ *engine.Options, _ *skeinv1.AgentSubagent, c *definition.Agent) { c.Spec.MaxInstances = 3 },
			"the conversations of this namespace have 3 subagents, which": func(o *engine.Options, _ *skeinv1.AgentSubagent, _ *definition.Agent) { o.Limits.NamespaceChildren = 3 },
		} {
			w := newWorld()
			kind := skeinv1.AgentSubagent{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, MaxInstances: 100}
			var options engine.Options
			var calls []skeinv1.ScriptToolCall
			for range 20 {
				calls = append(calls, enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "x"}))
			}
			w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}), func(a *definition.Agent) { limit(&options, &kind, a) })
			w.Definitions.Put("parent", func(a *definition.Agent) {
				a.Spec.Subagents = []skeinv1.AgentSubagent{kind}
				a.A.Prompt.Spec.ParallelToolCalls = true
				a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: skeinv1.BuiltinSubagents})
			}, enginetest.Script(skeinv1.ScriptStep{ToolCalls: calls}, enginetest.Say("done")))
			_, stop := start(w, func(o *engine.Options) { o.Limits = options.Limits })
			id := makeThread(ctx, w, "parent")
			send(ctx, w, id, "go")
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(w.Store.Children(ctx, id)).To(HaveLen(3), what)
			Expect(told(ctx, w, id)).To(ContainElement(ContainSubstring(what)))
			stop()
		}
	})
})
