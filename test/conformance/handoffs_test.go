package conformance

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Agents that hand over", func() {
	exposed := func(s *skeinv1.AgentSpec) { s.ExposeAsTool, s.ToolDescription = true, "Takes over." }
	// helper makes an agent with a model and a prompt of its own that answers with its name, and may be called.
	helper := func(ns, name string, tools ...string) []client.Object {
		return []client.Object{
			harness.Scripted(ns, name, always(name+": {{.Last.Content}}")),
			harness.Prompt(ns, name, name, tools...),
			harness.Agent(ns, name, name, exposed),
		}
	}
	// patch changes the spec of a Thread as kubectl does.
	patch := func(ctx context.Context, ns, body string) error {
		_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "thread", "thread", "--type=merge", "-p", body)
		return err
	}
	status := func(ctx context.Context, t *harness.Thread) func() ([]string, error) {
		return func() ([]string, error) {
			o, err := t.Object(ctx)
			return []string{o.Status.OriginAgent, o.Spec.AgentRef.Name, o.Status.Agent}, err
		}
	}
	handedOver := func(ctx context.Context, t *harness.Thread) (out []string) {
		GinkgoHelper()
		events, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range events {
			if e.Type == runtimev1.EventHandoff {
				out = append(out, string(e.Data))
			}
		}
		return out
	}

	It("pass a conversation on by calling an agent, by a queued call and by the spec, with all that is in it", Label("AGT-03", "TOL-02", "K8S-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, helper(ns, "billing", "builtin:kv")...)
		create(ctx, helper(ns, "complaints")...)
		t := converse(ctx, ns, []string{"agent:billing", "builtin:kv"}, []skeinv1.ScriptStep{
			harness.On("invoice", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				{Name: "billing", Arguments: harness.Raw(map[string]any{"message": "about an invoice"})},
				{Name: "set_value", Arguments: harness.Raw(map[string]any{"key": "topic", "value": "invoice"})},
			}}),
			always("triage: {{.Last.Content}}"),
		})
		ms := say(ctx, t, 1, "my invoice")
		Expect(last(ms)).To(HavePrefix("billing: "))
		Expect(ms).To(HaveLen(5), "%v", texts(ms))
		_, made := result(ms, "set_value")
		Expect(made).To(Equal("success"), "a call of the step is the old agent's still")
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1), "it goes on within the run")
		Expect(runs[0].Agent).To(Equal("billing"))
		Expect(handedOver(ctx, t)).To(HaveExactElements(MatchJSON(`{"from":"agent","to":"billing","by":"tool","toolCallId":"` + ms[1].ToolCalls[0].ID + `"}`)))
		Eventually(ctx, status(ctx, t)).Should(Equal([]string{"agent", "agent", "billing"}))

		By("applying the same manifest again")
		Expect(patch(ctx, ns, `{"spec":{"agentRef":{"name":"agent"},"title":"Invoice"}}`)).To(Succeed())
		Eventually(ctx, func() (string, error) {
			o, err := t.Object(ctx)
			if err == nil && o.Status.ObservedGeneration != o.Generation {
				return "", nil
			}
			return o.Status.Agent, err
		}).Should(Equal("billing"))
		Expect(last(say(ctx, t, 2, "and now?"))).To(Equal("billing: and now?"))
		Expect(t.Value(ctx, "topic")).To(ContainSubstring("invoice"))

		By("queueing the call of an agent that no prompt lists")
		_, err = cluster.Plugin(ctx, "-n", ns, "tool", "thread", "complaints", "--queue")
		Expect(err).NotTo(HaveOccurred())
		ms = settled(ctx, t, 3)
		Expect(last(ms)).To(HavePrefix("complaints: "))
		Eventually(ctx, status(ctx, t)).Should(Equal([]string{"agent", "agent", "complaints"}))

		By("naming another agent in the spec")
		Expect(patch(ctx, ns, `{"spec":{"agentRef":{"name":"billing"}}}`)).To(Succeed())
		Eventually(ctx, status(ctx, t)).Should(Equal([]string{"agent", "billing", "billing"}))
		Expect(last(say(ctx, t, 4, "back to you"))).To(Equal("billing: back to you"))
		Expect(handedOver(ctx, t)).To(HaveLen(3))
		Expect(handedOver(ctx, t)[2]).To(MatchJSON(`{"from":"complaints","to":"billing","by":"spec"}`))
	}, SpecTimeout(5*time.Minute))

	It("let a run under way pass to the agent that the spec names before its next model call", Label("AGT-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, helper(ns, "billing")...)
		begun, release := make(chan struct{}), make(chan struct{})
		server := heldServer(begun, release)
		DeferCleanup(server.Close)
		create(ctx, harness.OpenAI(ns, "held", server.URL+"/v1", ""))
		t := converse(ctx, ns, []string{"builtin:kv"}, []skeinv1.ScriptStep{harness.Answer("unused")})
		_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "prompt", "prompt", "--type=merge", "-p", `{"spec":{"modelRef":{"name":"held"}}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() error { return promptSettled(ctx, ns, "prompt") }).Should(Succeed())
		Expect(t.Say(ctx, "hello")).To(Succeed())
		Eventually(ctx, begun).Should(BeClosed())
		Expect(patch(ctx, ns, `{"spec":{"agentRef":{"name":"billing"}}}`)).To(Succeed())
		Eventually(ctx, func() ([]string, error) {
			events, err := t.Log(ctx)
			var kinds []string
			for _, e := range events {
				kinds = append(kinds, e.Type)
			}
			return kinds, err
		}).Should(ContainElement(runtimev1.EventHandoff))
		close(release)
		ms := settled(ctx, t, 1)
		Expect(last(ms)).To(HavePrefix("billing: "))
		Expect(ms).To(HaveLen(4), "%v", texts(ms))
	}, SpecTimeout(5*time.Minute))

	It("keep a conversation where it must stay", Label("AGT-03", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, helper(ns, "billing")...)
		t := converse(ctx, ns, []string{"agent:billing"}, []skeinv1.ScriptStep{
			harness.On("invoice", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{Name: "billing"}}}),
			always("I stay: {{.Last.Content}}"),
		}, func(s *skeinv1.ThreadSpec) { s.HandoffPolicy = skeinv1.HandoffNever })
		Expect(last(say(ctx, t, 1, "my invoice"))).To(And(HavePrefix("I stay: "), ContainSubstring("handoffPolicy: Never")))
		Expect(patch(ctx, ns, `{"spec":{"agentRef":{"name":"billing"}}}`)).To(MatchError(ContainSubstring("set handoffPolicy: Allow to hand it over")))

		By("moving the policy to the agent")
		_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "agent", "agent", "--type=merge", "-p", `{"spec":{"handoffPolicy":"Never"}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) { // the manager has seen it: it learns of agents and of threads apart
			a := harness.Agent(ns, "agent", "prompt")
			g.Expect(cluster.Client.Get(ctx, key(a), a)).To(Succeed())
			g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
		}).Should(Succeed())
		Expect(patch(ctx, ns, `{"spec":{"agentRef":{"name":"billing"},"handoffPolicy":null}}`)).To(Succeed())
		Eventually(ctx, func() ([]metav1.Condition, error) {
			o, err := t.Object(ctx)
			return o.Status.Conditions, err
		}).Should(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonHandoffRefused)))
		Expect(last(say(ctx, t, 2, "still there?"))).To(Equal("I stay: still there?"))
		_, err = cluster.Kubectl(ctx, "-n", ns, "patch", "agent", "agent", "--type=merge", "-p", `{"spec":{"handoffPolicy":"Allow"}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, status(ctx, t)).Should(Equal([]string{"agent", "billing", "billing"}))
	}, SpecTimeout(5*time.Minute))

	It("are asked in a thread of their own, a fresh one each time", Label("AGT-04", "TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, helper(ns, "expert")...)
		ask := harness.Calls("expert", map[string]any{"message": "what is {{.Last.Content}}?"})
		t := converse(ctx, ns, []string{"ask:expert"}, []skeinv1.ScriptStep{
			harness.On("one", ask), harness.After("expert", harness.Answer("the expert says {{.Last.Content}}")), harness.On("two", ask),
			harness.After("expert", harness.Answer("the expert says {{.Last.Content}}")),
		})
		Expect(last(say(ctx, t, 1, "one"))).To(Equal("the expert says expert: what is one?"))
		Expect(last(say(ctx, t, 2, "two"))).To(Equal("the expert says expert: what is two?"))
		Expect(handedOver(ctx, t)).To(BeEmpty())
		var children skeinv1.SubagentList
		Expect(cluster.Client.List(ctx, &children, client.InNamespace(ns))).To(Succeed())
		Expect(children.Items).To(HaveLen(2))
		Expect(children.Items).To(HaveEach(HaveField("Spec.AgentRef.Name", "expert")))
	}, SpecTimeout(5*time.Minute))

	It("say what is wrong with an agent that is listed and cannot be called", Label("AGT-03", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", harness.Answer("x")), harness.Prompt(ns, "other", "model"), harness.Agent(ns, "other", "other"),
			harness.Prompt(ns, "prompt", "model", "agent:other"))
		Eventually(ctx, func() string { return problemOf(ctx, ns, "prompt") }).Should(ContainSubstring(`Agent "other" is not exposed as a tool: set its spec.exposeAsTool`))
		_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "agent", "other", "--type=merge", "-p", `{"spec":{"exposeAsTool":true,"toolDescription":"x"}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() error { return promptSettled(ctx, ns, "prompt") }).Should(Succeed())
		bad := harness.Prompt(ns, "bad", "model")
		bad.Spec.Tools = []skeinv1.PromptTool{{Agent: "other", Builtin: skeinv1.BuiltinKV}}
		Expect(cluster.Client.Create(ctx, bad)).To(MatchError(ContainSubstring("give exactly one of name")))
		bad.Spec.Tools = []skeinv1.PromptTool{{Builtin: skeinv1.BuiltinKV, Mode: skeinv1.AgentToolAsk}}
		Expect(cluster.Client.Create(ctx, bad)).To(MatchError(ContainSubstring("mode is for agent")))
	}, SpecTimeout(5*time.Minute))

	It("call prompts as tools, whose steps are in the log below the conversation", Label("AGT-05", "TOL-02", "RUN-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		where := harness.CodeTool(ns, "where", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'where', execute: async (state) => ({ status: 'success', result: state.execution.promptPath.join('/') }) });
`, nil)
		inner := harness.Prompt(ns, "summarise", "small", "where", "prompt:summarise")
		inner.Spec.Text, inner.Spec.ExposeAsTool, inner.Spec.ToolDescription = "You summarise in {{ arguments.language }}.", true, "Summarises a text."
		inner.Spec.RequiredSchema = harness.Raw(map[string]any{"type": "object", "required": []string{"text", "language"}})
		create(ctx, where, harness.Scripted(ns, "small", harness.On("long", harness.Calls("where", map[string]any{})),
			harness.After("where", harness.Answer(`{{.Arguments.language}}: short, at {{.Last.Content}}`))), inner)
		prompt := harness.Prompt(ns, "prompt", "model", "prompt:summarise", "where")
		prompt.Spec.Tools[0].InitUserMessageProperty, prompt.Spec.Tools[0].IncludeToolCalls = "text", ptr.To(true)
		create(ctx, harness.Scripted(ns, "model", harness.On("go", harness.Calls("summarise", map[string]any{"text": "long"})),
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool", Matches: "missing property"}, ToolCalls: []skeinv1.ScriptToolCall{
				{Name: "summarise", Arguments: harness.Raw(map[string]any{"text": "a long text", "language": "en"})}}},
			harness.After("summarise", harness.Answer("It says {{.Last.Content}}"))), prompt,
			harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(HaveExactElements("user: go", "assistant:", ContainSubstring("missing property 'language'"), "assistant:",
			"tool: en: short, at prompt/summarise\n\n[called where({})]\n[success] prompt/summarise",
			HavePrefix("assistant: It says en: short")))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveExactElements(HaveField("Steps", 5)))
		page, err := t.Page(ctx, "maxDepth=1")
		Expect(err).NotTo(HaveOccurred())
		var below []string
		for _, m := range page.Messages {
			if m.Depth == 1 {
				Expect(m.ParentID).To(Equal(ms[3].ID))
				below = append(below, text(m))
			}
		}
		Expect(below).To(Equal([]string{"user: a long text", "assistant:", "tool: prompt/summarise", "assistant: en: short, at prompt/summarise"}))
	}, SpecTimeout(5*time.Minute))
})
