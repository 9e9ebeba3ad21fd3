package conformance

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A prompt that is called as a tool", func() {
	It("has variables of its own, and waits for what is required, a person and a subagent, over a restart", Serial, Label("AGT-05", "RUN-11", "ENV-01", "ENV-06", "SUB-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		tone := harness.CodeTool(ns, "tone", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'tone', execute: async (state) => ({ status: 'success', result: await state.env('TONE') }) });
`, nil)
		text := func(name, value string) []skeinv1.EnvVar {
			return []skeinv1.EnvVar{{Name: name, Value: ptr.To(value), Type: skeinv1.EnvText}}
		}
		called := harness.Prompt(ns, "summarise", "small", "tone", "builtin:subagents")
		called.Spec.Text, called.Spec.ExposeAsTool, called.Spec.ToolDescription = "Be {{ env.TONE }}.", true, "Summarises a text."
		called.Spec.Env, called.Spec.Tools[0].RequiresApproval = text("TONE", "dry"), true
		called.Spec.Variables = []skeinv1.VariableDeclaration{{Name: "LANGUAGE", Type: skeinv1.EnvText, Required: true}}
		prompt := harness.Prompt(ns, "prompt", "model", "prompt:summarise", "tone")
		prompt.Spec.Env = text("TONE", "kind")
		create(ctx, tone, called, prompt,
			harness.Scripted(ns, "small", harness.On("long", harness.Calls("tone", map[string]any{})),
				harness.After("tone", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "{{.Last.Content}}?"})),
				harness.After("subagent_create", harness.Answer("short, {{.Last.Content}}"))),
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("summarise", map[string]any{"message": "a long text"})),
				harness.After("summarise", harness.Calls("tone", map[string]any{})), harness.After("tone", harness.Answer("all, {{.Last.Content}}"))),
			harness.Scripted(ns, "worker", always("checked {{.Last.Content}}")), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(h *skeinv1.AgentSubagent) { h.Blocking = true })}
			}), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func() (string, error) { return cluster.Plugin(ctx, "-n", ns, "env", "pending", "thread") }).Should(ContainSubstring("LANGUAGE"))
		Expect(golang(t).SetEnv(ctx, "LANGUAGE", "en", "text")).To(Succeed())

		admin := runtimeAs("").Thread(ns, "thread")
		call := awaiting(ctx, admin, 1)[0]
		Expect(call.Name).To(Equal("tone"))
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := admin.Approve(ctx, call.ToolCallID, "why not", nil); return err }).Should(Succeed())
		ms := slices.DeleteFunc(settled(ctx, t, 1), func(m runtimev1.Message) bool { return m.Role == runtimev1.RoleSystem }) // of the subagent's life
		Expect(texts(ms)).To(Equal([]string{"user: go", "assistant:", "tool: short, checked dry?", "assistant:", "tool: kind", "assistant: all, kind"}))
		page, err := t.Page(ctx, "maxDepth=1")
		Expect(err).NotTo(HaveOccurred())
		var below []string
		for _, m := range page.Messages {
			if m.Depth == 1 {
				below = append(below, string(m.Role)+" "+m.Name)
				if m.Name == "tone" {
					Expect(m.Metadata).To(HaveKeyWithValue("approval", HaveKeyWithValue("approved", true)))
				}
			}
		}
		Expect(below).To(Equal([]string{"user ", "assistant ", "tool tone", "assistant ", "tool subagent_create", "assistant "}))
		Expect(t.Runs(ctx)).To(HaveExactElements(HaveField("Steps", 6)))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("An agent of two sides that another one calls", func() {
	It("talks in a thread of its own, waits for approval there, keeps to its limits, and can be given the conversation", Label("AGT-02", "AGT-03", "AGT-04", "RUN-10", "RUN-11"), func(ctx SpecContext) {
		ns := namespace(ctx)
		s := newMCP()
		s.AddTool(&mcp.Tool{Name: "add", Description: "adds", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return says("3"), nil })
		calc := mcpTool(ns, "calc", mcpServer(s).URL)
		b := harness.Prompt(ns, "b", "b", "calc")
		b.Spec.Tools[0].RequiresApproval = true
		b.Spec.RequiredSchema = harness.Raw(map[string]any{"type": "object", "required": []string{"unit"}})
		create(ctx, calc, b, harness.Prompt(ns, "a", "a"),
			harness.Scripted(ns, "a", harness.On("it is", harness.Calls("done", map[string]any{"message": "agreed: {{.Last.Content}}"})), always("please do: {{.Last.Content}}")),
			harness.Scripted(ns, "b", harness.On("please", harness.Calls("calc_add", map[string]any{"a": 1, "b": 2})), harness.After("calc_add", harness.Answer("it is {{.Last.Content}}"))),
			dual(ns, "pair", 6, func(s *skeinv1.AgentSpec) {
				s.ExposeAsTool, s.ToolDescription = true, "Work it out."
				s.SideA.SessionStop = &skeinv1.SessionTool{Name: "done"}
			}))
		create(ctx, harness.Scripted(ns, "model",
			harness.On("wrong", harness.Calls("pair", map[string]any{"message": "1 and 2", "arguments": map[string]any{}})),
			harness.On("sum", harness.Calls("pair", map[string]any{"message": "1 and 2", "arguments": map[string]any{"unit": "m"}})),
			harness.After("pair", harness.Answer("they say: {{.Last.Content}}"))),
			harness.Prompt(ns, "prompt", "model", "agent:pair"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent", func(s *skeinv1.ThreadSpec) {
				s.Arguments = harness.Raw(map[string]any{"unit": "m"})
			}))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(last(say(ctx, t, 1, "wrong"))).To(ContainSubstring("unit"), "what side b requires")

		By("asked, with approval")
		Expect(t.Say(ctx, "sum")).To(Succeed())
		var child *runtimeclient.Thread
		Eventually(ctx, func(g Gomega) {
			list := subagents(ctx, ns)
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].Status.Entry).To(HaveValue(HaveField("ThreadName", Not(BeEmpty()))))
			child = runtimeAs("").Thread(ns, list[0].Status.Entry.ThreadName)
		}).Should(Succeed())
		_, err := child.Approve(ctx, awaiting(ctx, child, 1)[0].ToolCallID, "", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(last(settled(ctx, t, 2))).To(Equal("they say: agreed: it is 3"))

		By("its limits")
		limit := func(steps string) {
			GinkgoHelper()
			_, err := cluster.Kubectl(ctx, "-n", ns, "patch", "agent", "pair", "--type=merge", "-p", `{"spec":{"limits":{"maxSteps":`+steps+`}}}`)
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func(g Gomega) { // until the manager has seen it
				var a skeinv1.Agent
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "pair"}, &a)).To(Succeed())
				g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
			}).Should(Succeed())
		}
		limit("1")
		Expect(last(say(ctx, t, 3, "sum again"))).To(And(HavePrefix("they say: "), ContainSubstring("the run made 1 model calls, which is its limit (limits.maxSteps)")))

		By("the conversation")
		limit("20")
		_, err = cluster.Kubectl(ctx, "-n", ns, "patch", "thread", "thread", "--type=merge", "-p", `{"spec":{"agentRef":{"name":"pair"}}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Agent).To(Equal("pair"))
		}).Should(Succeed())
		Expect(t.Say(ctx, "now you")).To(Succeed())
		admin := runtimeAs("").Thread(ns, "thread")
		_, err = admin.Approve(ctx, awaiting(ctx, admin, 1)[0].ToolCallID, "", json.RawMessage(`{"a":2,"b":1}`))
		Expect(err).NotTo(HaveOccurred())
		ms := settled(ctx, t, 4)
		Expect(sided(ms[len(ms)-8:])).To(HaveExactElements("user: now you", "a assistant: please do: now you", "b assistant:", HavePrefix("b tool: 3"),
			HavePrefix("b assistant: it is 3"), "a assistant:", HavePrefix("a tool:"), HavePrefix("a assistant: agreed: it is 3")))
	}, SpecTimeout(5*time.Minute))
})
