package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// hook is one in TypeScript; body is what it does with state, x and y, the first arguments behind state.
func hook(name skeinv1.HookName, body string) skeinv1.Hook {
	return skeinv1.Hook{Hook: name, Code: skeinv1.CodeSource{Inline: `
import { defineHook } from '@standardagents/builder';
export default defineHook('` + string(name) + `', async (state, x, y) => { ` + body + ` });`}}
}

// emits is a hook that does nothing but emit what it is called with.
func emits(name skeinv1.HookName) skeinv1.Hook {
	return hook(name, `await state.emit('`+string(name)+`', [x ?? null, y ?? null]);`)
}

// hooked declares an agent with hooks over a script with tools, and a thread of it, and waits until it is ready.
func hooked(ctx context.Context, hooks []skeinv1.Hook, tools []string, steps []skeinv1.ScriptStep, edit ...func(*skeinv1.ThreadSpec)) *harness.Thread {
	GinkgoHelper()
	ns := namespace(ctx)
	create(ctx,
		harness.Scripted(ns, "model", steps...), harness.Prompt(ns, "prompt", "model", tools...),
		harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.Hooks = hooks }))
	return hookedThread(ctx, ns, edit...)
}

// hookedThread makes the thread once the agent is known to be good.
func hookedThread(ctx context.Context, ns string, edit ...func(*skeinv1.ThreadSpec)) *harness.Thread {
	GinkgoHelper()
	a := harness.Agent(ns, "agent", "prompt")
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, key(a), a)).To(Succeed())
		g.Expect(a.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
	}).Should(Succeed())
	create(ctx, harness.NewThread(ns, "thread", "agent", edit...))
	return ready(ctx, cluster.Thread(ns, "thread"))
}

// emitted waits until so many events of a custom name are in the log, and gives their data.
func emitted(ctx context.Context, t *harness.Thread, name string, count int) []string {
	GinkgoHelper()
	return logged(ctx, t, runtimev1.EventCustomPrefix+name, count)
}

// logged waits until so many events of a type are in the log, and gives their data.
func logged(ctx context.Context, t *harness.Thread, kind string, count int) []string {
	GinkgoHelper()
	var out []string
	Eventually(ctx, func(g Gomega) {
		events, err := t.Log(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		out = nil
		for _, e := range events {
			if e.Type == kind {
				data, err := json.Marshal(e.Data)
				g.Expect(err).NotTo(HaveOccurred())
				out = append(out, string(data))
			}
		}
		g.Expect(len(out)).To(BeNumerically(">=", count), "events %s so far: %v", kind, out)
	}).Should(Succeed())
	return out
}

// update changes a message through the API.
func update(ctx context.Context, t *harness.Thread, id string, u runtimev1.MessageUpdates) runtimev1.Message {
	GinkgoHelper()
	body, err := json.Marshal(u)
	Expect(err).NotTo(HaveOccurred())
	raw, err := t.Request(http.MethodPatch, "messages/"+id).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred(), string(raw))
	var m runtimev1.Message
	Expect(json.Unmarshal(raw, &m)).To(Succeed())
	return m
}

var listing = []skeinv1.ScriptStep{
	harness.On("go", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
		{Name: "get_value", Arguments: harness.Raw(map[string]any{"key": "k"})}, {Name: "get_value", Arguments: harness.Raw(map[string]any{})}}}),
	harness.After("get_value", harness.Answer("done")),
}

var _ = Describe("Hooks", Label("HOK-01"), func() {
	It("after_thread_created is told once, before the first message", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookAfterThreadCreated, `await state.injectMessage({ role: 'system', content: 'welcome to ' + state.agentId });`)},
			nil, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadSpec) { s.Message = "early" })
		Expect(texts(settled(ctx, t, 1))).To(Equal([]string{"system: welcome to agent", "user: early", "assistant: echo: early"}))
		Expect(texts(say(ctx, t, 2, "late"))).To(HaveLen(5))
	}, SpecTimeout(5*time.Minute))

	It("after_thread_created is told of a thread whose agent comes later", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.NewThread(ns, "thread", "agent"))
		t := cluster.Thread(ns, "thread")
		Eventually(ctx, func() error { _, err := t.Messages(ctx); return err }).Should(Succeed())
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.Hooks = []skeinv1.Hook{emits(skeinv1.HookAfterThreadCreated)} }))
		emitted(ctx, t, "after_thread_created", 1)
	}, SpecTimeout(5*time.Minute))

	It("after_subagent_created is told once of each child", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hi"})), harness.After("subagent_create", harness.Answer("ok"))),
			harness.Prompt(ns, "prompt", "model", "builtin:subagents"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper()}
				s.Hooks = []skeinv1.Hook{emits(skeinv1.HookAfterSubagentCreated)}
			}),
			harness.Scripted(ns, "worker", harness.Echo()), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"))
		t := hookedThread(ctx, ns)
		say(ctx, t, 1, "go")
		Expect(emitted(ctx, t, "after_subagent_created", 1)).To(HaveExactElements(And(ContainSubstring(`"name":"helper"`), ContainSubstring(`"reference":"`+subagents(ctx, ns)[0].Name))))
	}, SpecTimeout(5*time.Minute))

	It("after_system_message is told of the system prompt, and shares state.context with the tools of the run", Label("STA-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.CodeTool(ns, "recall", `export default (state) => state.context.prompt;`, nil),
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("recall", map[string]any{})), harness.After("recall", harness.Answer("done"))),
			harness.Prompt(ns, "prompt", "model", "recall"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Hooks = []skeinv1.Hook{hook(skeinv1.HookAfterSystemMessage, `state.context.prompt = x.role + ': ' + x.content;`)}
			}))
		content, status := result(say(ctx, hookedThread(ctx, ns), 1, "go"), "recall")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(Equal("system: You are the agent of a test."))
	}, SpecTimeout(5*time.Minute))

	It("filter_messages takes stored messages out of the model's sight, calls with their results", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookFilterMessages, `
			const called = x.some((m) => m.role === 'tool');
			return x.filter((m) => m.role !== 'tool')
				.map((m) => (called && m.role === 'user' ? { ...m, content: m.content + ' after a call' } : m));`)},
			[]string{"builtin:kv"}, []skeinv1.ScriptStep{
				harness.On("^go$", harness.Calls("get_value", map[string]any{"key": "k"})),
				// Only a user's message that nothing follows matches: no call without its result.
				harness.On("^go after a call$", harness.Answer("nothing else in sight")),
			})
		say(ctx, t, 1, "go")
		ms := settled(ctx, t, 1)
		Expect(texts(ms)).To(HaveExactElements("user: go", "assistant:", HavePrefix("tool: "), "assistant: nothing else in sight"), "the log stays as it is")
		filtered := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookFilterMessages, `return x.filter((m) => m.content !== 'go');`)}, nil, []skeinv1.ScriptStep{harness.Echo()})
		_, err := filtered.Inject(ctx, runtimev1.NewMessage{Content: "before"})
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(say(ctx, filtered, 1, "go"))).To(Equal([]string{"user: before", "user: go", "assistant: echo: before"}))
	}, SpecTimeout(5*time.Minute))

	It("prefilter_llm_history rewrites what the model reads", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookPrefilterLLMHistory, `return [...x, { role: 'user', content: 'the last word' }];`)}, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(texts(say(ctx, t, 1, "go"))).To(Equal([]string{"user: go", "assistant: echo: the last word"}))
	}, SpecTimeout(5*time.Minute))

	It("before_create_message changes messages from users, from the model and from the API", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookBeforeCreateMessage, `return { ...x, content: x.content.replace(/\d{4}/g, '****') };`)}, nil, []skeinv1.ScriptStep{
			{Content: "you said {{ .Last.Content }}, I say 5678"},
		})
		Expect(texts(say(ctx, t, 1, "my pin is 1234"))).To(Equal([]string{"user: my pin is ****", "assistant: you said my pin is ****, I say ****"}))
		m, err := t.Inject(ctx, runtimev1.NewMessage{Content: "9999"})
		Expect(err).NotTo(HaveOccurred())
		Expect(text(m)).To(Equal("user: ****"))
	}, SpecTimeout(5*time.Minute))

	It("after_create_message is told of stored messages, in a run and at rest", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, `await state.emit('told', [(await state.getMessage(x.id)).content, state.execution !== null]);`)}, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "go")
		_, err := t.Inject(ctx, runtimev1.NewMessage{Content: "aside"})
		Expect(err).NotTo(HaveOccurred())
		Expect(emitted(ctx, t, "told", 3)).To(Equal([]string{`["go",true]`, `["echo: go",true]`, `["aside",false]`}))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1), "being told is no run")
	}, SpecTimeout(5*time.Minute))

	It("before_update_message and after_update_message see what is changed", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{
			hook(skeinv1.HookBeforeUpdateMessage, `return { ...y, content: y.content + ' (edited)' };`),
			emits(skeinv1.HookAfterUpdateMessage),
		}, nil, []skeinv1.ScriptStep{harness.Echo()})
		m, err := t.Inject(ctx, runtimev1.NewMessage{Content: "first"})
		Expect(err).NotTo(HaveOccurred())
		second := "second"
		Expect(text(update(ctx, t, m.ID, runtimev1.MessageUpdates{Content: &second}))).To(Equal("user: second (edited)"))
		Expect(emitted(ctx, t, "after_update_message", 1)).To(ConsistOf(And(ContainSubstring(m.ID), ContainSubstring("second (edited)"))))
	}, SpecTimeout(5*time.Minute))

	It("before_store_tool_result, after_tool_call_success and after_tool_call_failure see the results of calls", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{
			hook(skeinv1.HookBeforeStoreToolResult, `if (y.status === 'success') return { ...y, result: 'value of ' + x.arguments.key };`),
			emits(skeinv1.HookAfterToolCallSuccess), emits(skeinv1.HookAfterToolCallFailure),
		}, []string{"builtin:kv"}, listing)
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(ContainElement("tool: value of k"))
		Expect(emitted(ctx, t, "after_tool_call_success", 1)).To(ConsistOf(And(ContainSubstring(`"name":"get_value"`), ContainSubstring(`"result":"value of k"`))))
		Expect(emitted(ctx, t, "after_tool_call_failure", 1)).To(ConsistOf(And(ContainSubstring(`"status":"error"`), ContainSubstring("missing property"))))
	}, SpecTimeout(5*time.Minute))

	It("of a prompt take the place of the agent's of the same name", func(ctx SpecContext) {
		ns := namespace(ctx)
		answers := func(said string) skeinv1.Hook {
			return hook(skeinv1.HookBeforeCreateMessage, `return x.role === 'assistant' ? { content: '`+said+`' } : null;`)
		}
		prompt := harness.Prompt(ns, "prompt", "model")
		prompt.Spec.Hooks = []skeinv1.Hook{answers("from the prompt")}
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), prompt, harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
			s.Hooks = []skeinv1.Hook{answers("from the agent"), emits(skeinv1.HookAfterCreateMessage)}
		}))
		t := hookedThread(ctx, ns)
		Expect(last(say(ctx, t, 1, "go"))).To(Equal("from the prompt"))
		emitted(ctx, t, "after_create_message", 2)
	}, SpecTimeout(5*time.Minute))

	It("of the samples mask what they are to mask, and count", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := cluster.Kubectl(ctx, "-n", ns, "apply", "-f", filepath.Join(harness.Root(), "config", "samples", "hooks.yaml"))
		Expect(err).NotTo(HaveOccurred())
		create(ctx, harness.NewThread(ns, "thread", "discreet"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(texts(say(ctx, t, 1, "card 4111 1111 1111 1111, order 4471"))).To(Equal([]string{
			"user: card •••• 1111, order 4471", "assistant: I have read: card •••• 1111, order 4471"}))
		Eventually(ctx, func() (string, error) { return t.Value(ctx, "characters") }).Should(MatchJSON(`{"user":26,"assistant":39}`))
	}, SpecTimeout(5*time.Minute))

	It("that queue messages from run to run come to an end", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, `if (x.role === 'assistant') await state.queueMessage({ content: 'again' });`)}, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(t.Say(ctx, "go")).To(Succeed())
		logged(ctx, t, runtimev1.EventHookFailed, 1)
		Expect(settled(ctx, t, 5)).To(HaveLen(10), "a user's turn, and four that hooks have led to")
	}, SpecTimeout(5*time.Minute))

	DescribeTable("that fail are in the log, and the thread goes on with what there was", func(ctx SpecContext, body string, timeout time.Duration, says string) {
		h := hook(skeinv1.HookBeforeCreateMessage, body)
		h.Timeout = &metav1.Duration{Duration: timeout}
		t := hooked(ctx, []skeinv1.Hook{h}, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(texts(say(ctx, t, 1, "go"))).To(Equal([]string{"user: go", "assistant: echo: go"}))
		Expect(logged(ctx, t, runtimev1.EventHookFailed, 2)).To(HaveEach(And(ContainSubstring(`"hook":"before_create_message"`), ContainSubstring(`"owner":"Agent agent"`), ContainSubstring(says))))
	},
		Entry("one that throws", `throw new TypeError('not today');`, time.Minute, "TypeError: not today", SpecTimeout(5*time.Minute)),
		Entry("one that hangs", `for (;;);`, 2*time.Second, "within 2s", SpecTimeout(5*time.Minute)),
		Entry("one that gives what is no message", `return [1, 2];`, time.Minute, "must be an object", SpecTimeout(5*time.Minute)),
	)

	It("that write what they are called for come to an end", func(ctx SpecContext) {
		t := hooked(ctx, []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, `await state.injectMessage({ role: 'system', content: 'after ' + x.role });`)}, nil, []skeinv1.ScriptStep{harness.Echo()})
		_, err := t.Inject(ctx, runtimev1.NewMessage{Content: "hi"})
		Expect(err).NotTo(HaveOccurred())
		Expect(logged(ctx, t, runtimev1.EventHookFailed, 1)).To(HaveExactElements(ContainSubstring("each caused by the one before")))
		ms, err := t.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(ms).To(HaveLen(5))
	}, SpecTimeout(5*time.Minute))

	It("that cause each other through effects come to an end too", Label("EFF-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "again", `export default async (state) => { await state.injectMessage({ role: 'system', content: 'again' }); };`),
			harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Hooks = []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, `await state.scheduleEffect('again', {}, 0);`)}
			}))
		t := hookedThread(ctx, ns)
		_, err := t.Inject(ctx, runtimev1.NewMessage{Content: "hi"})
		Expect(err).NotTo(HaveOccurred())
		Expect(logged(ctx, t, runtimev1.EventHookFailed, 1)).To(HaveExactElements(ContainSubstring("not scheduled: a chain of 4 hooks, each caused by the one before")))
		ms, err := t.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(ms)).To(Equal([]string{"user: hi", "system: again", "system: again", "system: again"}))
	}, SpecTimeout(5*time.Minute))

	It("come from ConfigMaps, and say on their object where they do not compile", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "code"}, Data: map[string]string{"hook.ts": "export default async (state) => {\n  const x: = 1;\n};\n"}}
		create(ctx, config, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
			s.Hooks = []skeinv1.Hook{{Hook: skeinv1.HookAfterCreateMessage, Code: skeinv1.CodeSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "code"}, Key: "hook.ts"}}}}
		}))
		a := harness.Agent(ns, "agent", "prompt")
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(a), a)).To(Succeed())
			g.Expect(a.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonCompileFailed),
				HaveField("Message", And(ContainSubstring("after_create_message"), ContainSubstring("hook.ts:2:"))))))
		}).Should(Succeed())
		config.Data["hook.ts"] = `export default async (state, m) => { await state.emit('healed', m.content); };`
		Expect(cluster.Client.Update(ctx, config)).To(Succeed())
		t := hookedThread(ctx, ns)
		say(ctx, t, 1, "go")
		Expect(emitted(ctx, t, "healed", 2)).To(Equal([]string{`"go"`, `"echo: go"`}))
	}, SpecTimeout(5*time.Minute))

	DescribeTable("are refused at admission with what to do", Label("K8S-02"), func(ctx SpecContext, hooks, want string) {
		ns := namespace(ctx)
		_, err := cluster.KubectlIn(ctx, "apiVersion: skein.dev/v1alpha1\nkind: Agent\nmetadata: {name: wrong, namespace: "+ns+"}\nspec: {sideA: {promptRef: {name: p}}, hooks: "+hooks+"}\n", "apply", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry("with a name that is none", `[{hook: before_lunch, code: {inline: "1"}}]`, "after_create_message", SpecTimeout(time.Minute)),
		Entry("twice", `[{hook: filter_messages, code: {inline: "1"}}, {hook: filter_messages, code: {inline: "2"}}]`, "Duplicate value", SpecTimeout(time.Minute)),
		Entry("with two sources", `[{hook: filter_messages, code: {inline: "1", configMapKeyRef: {name: a, key: b}}}]`, "set exactly one of inline and configMapKeyRef", SpecTimeout(time.Minute)),
		Entry("with a timeout of nothing", `[{hook: filter_messages, timeout: 0s, code: {inline: "1"}}]`, "from 1ms to 10m", SpecTimeout(time.Minute)),
	)
})
