package conformance

import (
	"net/http"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("What models of parents and children are given", func() {
	It("leaves out subagent_create while a kind is at its limit", Label("SUB-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		var mu sync.Mutex
		offered := map[string][]string{} // the tools, by the newest message
		provider := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			newest := req.Messages[len(req.Messages)-1]
			what := newest.Role
			if what == "user" {
				what = string(newest.Content)
			}
			tools := []string{}
			for _, tool := range req.Tools {
				tools = append(tools, tool.Function.Name)
			}
			mu.Lock()
			offered[what] = tools
			mu.Unlock()
			if what == `"go"` {
				harness.CallTool(w, req.Model, "call_1", "subagent_create", `{"agent":"helper","message":"add"}`)
				return
			}
			harness.Say(w, req.Model, "noted")
		})
		DeferCleanup(provider.Close)
		create(ctx, harness.OpenAI(ns, "parent", provider.URL, ""), harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(a *skeinv1.AgentSubagent) { a.Resumable, a.Blocking, a.MaxInstances = true, true, 1 })}
			}),
			harness.Scripted(ns, "worker", always("five")), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"),
			harness.NewThread(ns, "thread", "parent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		say(ctx, t, 1, "go")
		child := onlyChild(ctx, ns)
		say(ctx, t, 2, "now")
		Expect(child.Terminate(ctx)).To(Succeed())
		say(ctx, t, 3, "then")
		mu.Lock()
		defer mu.Unlock()
		const creates = "subagent_create"
		Expect(offered[`"go"`]).To(ContainElement(creates))
		Expect(offered["tool"]).To(ConsistOf("subagent_list", "subagent_message"), "in the same run, after the child was made")
		Expect(offered[`"now"`]).To(ConsistOf("subagent_list", "subagent_message"))
		Expect(offered[`"then"`]).To(ContainElement(creates), "the child has ended")
	}, SpecTimeout(2*time.Minute))

	It("is a silent message when a child fails whose call does not block", Label("SUB-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("^go$", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "add"})), always("noted")},
			[]skeinv1.ScriptStep{{Error: "the model is broken"}},
			helper())
		Expect(t.Say(ctx, "go")).To(Succeed())
		ms := takenIn(ctx, t, And(reported, ContainSubstring(" failed]\n")))
		reference := subagents(ctx, ns)[0].Name
		Expect(ms).To(ContainElement(And(HaveField("Role", runtimev1.RoleUser), HaveField("Silent", true), HaveField("Content", HaveValue(HavePrefix("[subagent helper ("+reference+") failed]"))),
			HaveField("Metadata", And(HaveKeyWithValue("subagent_id", reference), HaveKeyWithValue("status_kind", "failed"))))))
		page, err := t.Page(ctx, "limit=100")
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveEach(HaveField("Silent", false)), "those who read the conversation do not see it")
		Expect(last(ms)).To(Equal("noted"), "it woke the parent")
	}, SpecTimeout(2*time.Minute))

	It("are the same arguments in each run of a child, also after a restart", Serial, outages, Label("SUB-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		m := instead(ctx, harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: []string{"--namespaces=" + ns}})
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("^go$", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "first", "arguments": map[string]any{"topic": "tides"}})), always("noted")},
			[]skeinv1.ScriptStep{always("{{ .Last.Content }} of {{ .Arguments.topic }}")},
			helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
		say(ctx, t, 1, "go")
		child := onlyChild(ctx, ns)
		Expect(last(settled(ctx, child, 1))).To(Equal("first of tides"))
		Expect(last(say(ctx, child, 2, "second"))).To(Equal("second of tides"))
		m.Kill()
		Expect(m.Start(ctx)).To(Succeed())
		served(ctx)
		Expect(last(say(ctx, child, 3, "third"))).To(Equal("third of tides"))
		Expect(conversation(child).Get(ctx)).To(HaveField("Arguments", MatchJSON(`{"topic":"tides"}`)))
	}, SpecTimeout(3*time.Minute))
})
