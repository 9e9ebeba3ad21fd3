package conformance

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// modelCall is a tool call of an answer: the tool and its arguments.
type modelCall struct{ tool, args string }

// calling is a model that makes one call after the other, each in a step of its own, and then answers "done".
func calling(calls ...modelCall) *harness.ChatServer {
	var mu sync.Mutex
	s := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
		mu.Lock()
		defer mu.Unlock()
		if len(calls) == 0 {
			harness.Say(w, req.Model, "done")
			return
		}
		harness.CallTool(w, req.Model, "", calls[0].tool, calls[0].args)
		calls = calls[1:]
	})
	DeferCleanup(s.Close)
	return s
}

// offered gives the names of the tools of each request so far.
func offered(s *harness.ChatServer) (out [][]string) {
	requests, _ := s.Requests()
	for _, r := range requests {
		names := []string{}
		for _, t := range r.Tools {
			names = append(names, t.Function.Name)
		}
		out = append(out, names)
	}
	return out
}

var _ = Describe("A skill", Label("AGT-08"), func() {
	inline := func(inline string) skeinv1.SkillText { return skeinv1.SkillText{Inline: inline} }

	It("unlocks tools of every kind when the model activates it, once and with its arguments", func(ctx SpecContext) {
		ns := namespace(ctx)
		server := toolServer(func(w http.ResponseWriter, _ *http.Request, _ string) { _, _ = io.WriteString(w, "got") })
		remote := newMCP()
		remote.AddTool(&mcp.Tool{Name: "hi", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return says("hi"), nil })
		gated := []modelCall{{"stamp", `{}`}, {"get", `{}`}, {"m_hi", `{}`}, {"expert", `{"message":"why"}`}, {"summarise", `{"message":"long"}`}, {"set_value", `{"key":"k","value":1}`}}
		calls := append(append(append([]modelCall{}, gated...), modelCall{"skill", `{"name":"reports","arguments":{"year":2026}}`}), gated...)
		model := calling(append(calls, modelCall{"skill", `{"name":"reports","arguments":{"year":1999}}`})...)

		inner := harness.Prompt(ns, "summarise", "small")
		inner.Spec.ExposeAsTool, inner.Spec.ToolDescription = true, "Summarises."
		prompt := harness.Prompt(ns, "prompt", "model", "stamp", "get", "m", "ask:expert", "prompt:summarise", "builtin:kv", "builtin:files")
		for i := range prompt.Spec.Tools[:6] {
			prompt.Spec.Tools[i].Skill = "reports"
		}
		prompt.Spec.Tools[5].RequiresApproval = true
		prompt.Spec.Skills = []skeinv1.PromptSkill{
			{Name: "reports", Parameters: harness.Raw(map[string]any{"type": "object", "required": []string{"year"}}),
				Instructions: skeinv1.SkillText{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "skills"}, Key: "SKILL.md"}}},
			{Name: "letters", Description: "Writes letters.", Instructions: inline("Be brief.")},
		}
		create(ctx, harness.OpenAI(ns, "model", model.URL+"/v1", ""), harness.Scripted(ns, "small", always("short")),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "skills"}, Data: map[string]string{"SKILL.md": "---\nname: reports\ndescription: Writes reports.\n---\nCall everything.\n"}},
			harness.CodeTool(ns, "stamp", `export default { execute: async () => ({ status: 'success', result: 'stamped' }) };`, nil),
			harness.HTTPTool(ns, "get", skeinv1.HTTPTool{URL: server.URL + "/"}, nil), mcpTool(ns, "m", mcpServer(remote).URL))
		expert := harness.Agent(ns, "expert", "expert", func(s *skeinv1.AgentSpec) { s.ExposeAsTool, s.ToolDescription = true, "Knows." })
		create(ctx, harness.Scripted(ns, "expert", always("expert: {{.Last.Content}}")), harness.Prompt(ns, "expert", "expert"), expert)
		create(ctx, inner, prompt, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		listed(ctx, t, "m_hi", nil)
		Expect(golang(t).InvokeTool(ctx, "set_value", json.RawMessage(`{"key":"k","value":0}`))).To(HaveField("Error", ContainSubstring(`activate it by the tool skill`)), "nor is there a way around")
		Expect(t.Say(ctx, "go")).To(Succeed())
		waiting := awaiting(ctx, golang(t), 1)
		_, err := golang(t).Approve(ctx, waiting[0].ToolCallID, "", nil)
		Expect(err).NotTo(HaveOccurred())
		ms := settled(ctx, t, 1)

		var results []string
		for _, m := range ms {
			if m.Role == "tool" {
				results = append(results, m.ToolStatus+" "+*m.Content)
			}
		}
		Expect(results).To(HaveLen(14), "%v", texts(ms))
		for i, c := range gated {
			Expect(results[i]).To(Equal("error " + c.tool + ` is there once the skill "reports" is active: activate it by the tool skill, and call ` + c.tool + " in a step after that"))
		}
		Expect(results[6:]).To(HaveExactElements("success Call everything.", "success stamped", "success got", "success hi", "success expert: why", "success short", HavePrefix("success {"),
			"success Call everything.\n\n[The skill was active already: its arguments are {\"year\":2026}.]"))
		files := []string{"read_file", "write_file", "list_files", "delete_file", "find_files", "grep_files"}
		steps := offered(model)
		Expect(steps).To(HaveLen(15))
		Expect(steps[6]).To(ConsistOf(append([]string{"skill"}, files...)))
		Expect(steps[7]).To(ConsistOf(append([]string{"skill", "stamp", "get", "m_hi", "expert", "summarise", "get_value", "set_value"}, files...)))
		Expect(golang(t).Get(ctx)).To(HaveField("ActivatedSkills", HaveExactElements(And(HaveField("Name", "reports"), HaveField("Arguments", MatchJSON(`{"year":2026}`))))))
		Expect(server.Requests()).To(HaveLen(1), "what was locked was not run")
	}, SpecTimeout(4*time.Minute))

	It("may be activated from outside, and ends with the conversation", Label("THR-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		model := calling(modelCall{"set_value", `{"key":"k","value":1}`})
		prompt := harness.Prompt(ns, "prompt", "model", "builtin:kv")
		prompt.Spec.Tools[0].Skill = "values"
		prompt.Spec.Skills = []skeinv1.PromptSkill{{Name: "values", Description: "Keeps values.", Instructions: inline("Keep them."),
			Parameters: harness.Raw(map[string]any{"type": "object", "properties": map[string]any{"depth": map[string]any{"type": "integer"}}})}}
		create(ctx, harness.OpenAI(ns, "model", model.URL+"/v1", ""), prompt, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		_, err := golang(t).ActivateSkill(ctx, "values", json.RawMessage(`{"depth":"x"}`))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("/depth")))
		Expect(cluster.Plugin(ctx, "-n", ns, "skill", "thread", "values", "--args", `{"depth":3}`)).To(Equal("skill/values active with {\"depth\":3}\n"))
		Expect(cluster.Plugin(ctx, "-n", ns, "skill", "thread")).To(Equal("skill/values active with {\"depth\":3}\n"))
		Expect(texts(say(ctx, t, 1, "go"))).To(HaveExactElements("user: go", "assistant:", `tool: {"key":"k"}`, "assistant: done"))
		Expect(offered(model)).To(HaveEach(ConsistOf("get_value", "set_value", "skill")))

		_, err = golang(t).Destroy(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(golang(t).Get(ctx)).To(HaveField("ActivatedSkills", BeEmpty()))
		Expect(last(say(ctx, t, 2, "again"))).To(Equal("done"))
		Expect(offered(model)[2]).To(ConsistOf("skill"))
	}, SpecTimeout(2*time.Minute))

	It("of the samples is learnt, and its tool approved", Label("RUN-11"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := cluster.Kubectl(ctx, "-n", ns, "apply", "-f", filepath.Join(harness.Root(), "config", "samples", "skills.yaml"))
		Expect(err).NotTo(HaveOccurred())
		t := ready(ctx, cluster.Thread(ns, "meetings"))
		Expect(t.Say(ctx, "Please write the minutes: we met and we left.")).To(Succeed())
		waiting := awaiting(ctx, golang(t), 1)
		_, err = golang(t).Approve(ctx, waiting[0].ToolCallID, "", nil)
		Expect(err).NotTo(HaveOccurred())
		ms := settled(ctx, t, 1)
		Expect(texts(ms)).To(HaveLen(6), "%v", texts(ms))
		Expect(text(ms[2])).To(Equal("tool: Write the file /minutes.md: one line for each thing that was decided, and nothing else."))
		Expect(last(ms)).To(Equal("The minutes are in /minutes.md."))
		Expect(t.ReadFile(ctx, "/minutes.md")).To(BeEquivalentTo("We met, and we left.\n"))
	}, SpecTimeout(2*time.Minute))

	It("that is declared wrongly is refused, or keeps its prompt from being ready until it is mended", Label("K8S-01", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		sql := skeinv1.PromptSkill{Name: "sql", Description: "Asks databases.", Instructions: inline("Ask.")}
		for want, edit := range map[string]func(*skeinv1.PromptSpec){
			"must be one of spec.skills":  func(s *skeinv1.PromptSpec) { s.Tools[0].Skill = "sequel" },
			"spec.skills[0].name":         func(s *skeinv1.PromptSpec) { s.Skills[0].Name = "S Q L" },
			"a skill needs a description": func(s *skeinv1.PromptSpec) { s.Skills[0].Description = "" },
			"set exactly one of inline and configMapKeyRef, for the instructions": func(s *skeinv1.PromptSpec) { s.Skills[0].Instructions = skeinv1.SkillText{} },
			`spec.skills[1]: Duplicate value: {"name":"sql"}`:                     func(s *skeinv1.PromptSpec) { s.Skills = append(s.Skills, sql) },
		} {
			bad := harness.Prompt(ns, "bad", "model", "builtin:kv")
			bad.Spec.Skills = []skeinv1.PromptSkill{sql}
			edit(&bad.Spec)
			Expect(cluster.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(want)))
		}
		p := harness.Prompt(ns, "prompt", "model")
		p.Spec.Skills = []skeinv1.PromptSkill{{Name: "sql", Instructions: skeinv1.SkillText{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "skills"}, Key: "SKILL.md"}}}}
		texts := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "skills"}, Data: map[string]string{"SKILL.md": "Ask."}}
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), p, texts)
		Eventually(ctx, func() string { return problemOf(ctx, ns, "prompt") }).Should(ContainSubstring("no front matter with a description"))
		texts.Data["SKILL.md"] = "---\ndescription: Asks databases.\n---\nAsk."
		Expect(cluster.Client.Update(ctx, texts)).To(Succeed())
		Eventually(ctx, func() error { return promptSettled(ctx, ns, "prompt") }).Should(Succeed())
	}, SpecTimeout(2*time.Minute))
})
