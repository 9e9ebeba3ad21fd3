package conformance

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// fixture gives a file of test/fixtures: code as a user of the API writes it.
func fixture(path string) string {
	GinkgoHelper()
	b, err := os.ReadFile(filepath.Join(harness.Root(), "test", "fixtures", path))
	Expect(err).NotTo(HaveOccurred())
	return string(b)
}

// fixtureTool is a tool of test/fixtures, whose parameters are those that its code declares.
func fixtureTool(ns, name string) *skeinv1.Tool {
	GinkgoHelper()
	return &skeinv1.Tool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       skeinv1.ToolSpec{Description: "A tool of test/fixtures.", Code: &skeinv1.CodeSource{Inline: fixture("tools/" + name + ".ts")}},
	}
}

// called is a tool's name as models call it.
func called(name string) string { return strings.ReplaceAll(name, "-", "_") }

// useFixtures makes a thread whose model makes these calls one after the other when told to "go", then says "done". The
// tools are those of the calls, and more.
func useFixtures(ctx SpecContext, ns string, calls []skeinv1.ScriptStep, names []string, edit ...func(*skeinv1.ThreadSpec)) *harness.Thread {
	GinkgoHelper()
	var tools []string
	for _, name := range names {
		if !strings.HasPrefix(name, "builtin:") {
			create(ctx, fixtureTool(ns, name))
		}
		tools = append(tools, name)
	}
	steps := append([]skeinv1.ScriptStep{}, calls...)
	return converse(ctx, ns, tools, append(steps, harness.Answer("done"), harness.Echo()), edit...)
}

var _ = Describe("Code written for ThreadState", Label("TOL-03"), func() {
	DescribeTable("runs unchanged", func(ctx SpecContext, name string, args map[string]any, prepare func(context.Context, *harness.Thread), want OmegaMatcher, more ...string) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "remind", fixture("effects/remind.ts")))
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{harness.Calls(called(name), args)}, append([]string{name}, more...), func(s *skeinv1.ThreadSpec) {
			s.Arguments = harness.Raw(map[string]any{"topic": "tides"})
			s.UserID = "ada"
			s.Env = []skeinv1.EnvVar{{Name: "REGION", Value: new("eu"), Type: skeinv1.EnvText}}
		})
		if prepare != nil {
			prepare(ctx, t)
		}
		content, status := result(say(ctx, t, 1, "go"), called(name))
		Expect(content).To(want)
		Expect(status).To(Equal("success"), content)
	},
		Entry("on identity and arguments", "identity", nil, nil, And(
			MatchRegexp(`"thread":"[0-9a-f-]{36}"`), ContainSubstring(`"agent":"agent"`), ContainSubstring(`"user":"ada"`), ContainSubstring(`"topic":"tides"`),
			ContainSubstring(`"recent":true`), ContainSubstring(`"ended":false`), ContainSubstring(`"helpers":[]`)), SpecTimeout(2*time.Minute)),
		Entry("on messages", "messages", map[string]any{"note": "to check"}, nil, MatchJSON(`{
			"total":2,"found":"system: to check","updated":["system: TO CHECK",{"source":"fixture","checked":true}],"newest":["system: TO CHECK"],
			"oldest":["user: go"],"hasMore":true,"removed":true,"twice":false,"missing":null,"waits":["pending",true]}`), SpecTimeout(2*time.Minute)),
		Entry("on files", "files", nil, nil, MatchJSON(`{
			"written":["2026.txt","text/plain",16,2026],"text":"alpha\nbeta\ngamma","bytes":16,"folder":true,"size":16,"names":["2026.txt","dot.png"],"line":2,
			"paths":["/reports/2026.txt"],"thumbnail":true,"noThumbnail":null,"missing":[null,null,null],"count":2,"failures":1}`), SpecTimeout(2*time.Minute)),
		Entry("on files as streams", "stream", map[string]any{"path": "/log"}, func(ctx context.Context, t *harness.Thread) {
			Expect(t.WriteFile(ctx, "/log", "text/plain", bytes.Repeat([]byte("a line of the log\n"), 50_000))).To(Succeed())
		}, MatchJSON(`{"lines":50000,"chunks":4,"complete":true}`), SpecTimeout(2*time.Minute)),
		Entry("on files as streams that are aborted", "stream", map[string]any{"path": "/log", "most": 2}, func(ctx context.Context, t *harness.Thread) {
			Expect(t.WriteFile(ctx, "/log", "text/plain", bytes.Repeat([]byte("a line of the log\n"), 50_000))).To(Succeed())
		}, ContainSubstring(`"chunks":2,"complete":false`), SpecTimeout(2*time.Minute)),
		Entry("on values", "values", nil, func(ctx context.Context, t *harness.Thread) {
			Expect(t.SetValue(ctx, "calls", "4")).To(Succeed())
		}, MatchJSON(`{"calls":5,"before":null,"locale":"de-AT","gone":[null,null]}`), SpecTimeout(2*time.Minute)),
		Entry("on variables", "environment", nil, nil, And(
			ContainSubstring(`"region":"eu"`), ContainSubstring(`"label":"shown"`), Not(ContainSubstring("never-to-be-shown")),
			ContainSubstring(`"types":["text","secret","text","secret"]`), ContainSubstring(`NO_SUCH_VARIABLE`)), SpecTimeout(2*time.Minute)),
		Entry("on definitions", "resources", nil, nil, And(
			ContainSubstring(`"agent":"agent","names":["model","prompt","agent"]`), ContainSubstring("nothing-of-that-name")), SpecTimeout(2*time.Minute)),
		Entry("on other tools", "calls", map[string]any{"key": "k", "value": 7}, nil, MatchJSON(`{"read":"7","refused":["error","string"]}`), "builtin:kv", "values", SpecTimeout(2*time.Minute)),
		Entry("on effects", "effects", nil, nil, MatchJSON(`{"uuid":true,"all":true,"others":0,"about":"never","minutes":30,"removed":true,"twice":false}`), SpecTimeout(2*time.Minute)),
		Entry("on runCode", "run-code", map[string]any{"path": "/notes.txt"}, func(ctx context.Context, t *harness.Thread) {
			Expect(t.WriteFile(ctx, "/notes.txt", "text/plain", []byte("  spring tides  "))).To(Succeed())
		}, MatchJSON(`{"status":"success","result":"SPRIN","reported":[{"length":12}],"reports":[{"length":12}],"logs":["info: summing up"],"running":false,
			"ended":"terminated","bare":[],"broken":["error","RangeError","too far"],"unlinked":"link_error"}`), SpecTimeout(2*time.Minute)),
		Entry("on arguments, by a schema of zod", "arguments", map[string]any{
			"item": "tea", "to": map[string]any{"city": "Wien", "zip": "1010"}, "gift": nil, "extras": map[string]any{"milk": 1}, "at": "2026-11-21T00:00:00Z",
		}, nil, MatchJSON(`{"line":"1 tea Wien","notes":0,"gift":null,"extras":["milk"],"year":2026}`), SpecTimeout(2*time.Minute)),
		Entry("on the execution", "execution", nil, nil, MatchJSON(`{"flow":"sess_","before":["a",1,1,0,false,["prompt"],2],"stopped":[false,null,false]}`), SpecTimeout(2*time.Minute)),
		Entry("on globals", "globals", nil, nil, MatchJSON(`{"url":"https://example.test/a?q=1&r=%C3%BC","text":"grüß","base64":"hello","copy":[0,true],"order":["micro"],
			"uuid":36,"aborted":true,"absent":[]}`), SpecTimeout(2*time.Minute)),
		Entry("on requests, answers and streams", "web", map[string]any{"name": "Ada L"}, nil, MatchJSON(`{
			"method":"POST","headers":[["content-type","application/x-www-form-urlencoded;charset=UTF-8"],["x-name","Ada L, second"]],"body":"name=Ada+L","used":false,
			"numbers":[1,2,3],"answer":[302,false,"https://example.test/b"],"json":{"name":"Ada L"},"text":"ab"}`), SpecTimeout(2*time.Minute)),
	)

	It("sends events that need not be awaited, and has tools called later", Label("EVT-01", "TOL-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{harness.Calls("events", nil), harness.Calls("calls", map[string]any{"key": "k", "value": 1})}, []string{"events", "calls", "values", "builtin:kv"})
		ms := say(ctx, t, 1, "go")
		content, status := result(ms, "values")
		Expect(status).To(Equal("success"), "the tool that the code queued was called")
		Expect(content).To(ContainSubstring(`"calls":1`))
		log, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		var steps []string
		for _, e := range log {
			if e.Type == "event:progress" {
				steps = append(steps, string(e.Data))
			}
		}
		Expect(steps).To(HaveExactElements(MatchJSON(`{"step":1,"total":3}`), MatchJSON(`{"step":2,"total":3}`), MatchJSON(`{"step":3,"total":3}`)))
	}, SpecTimeout(2*time.Minute))

	It("queues messages, which the run takes in before its next step", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{harness.Calls("messages", map[string]any{"note": "n", "later": "and this"})}, []string{"messages"})
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(ContainElements("user: and this"))
		Expect(last(ms)).To(Equal("done"))
	}, SpecTimeout(2*time.Minute))

	It("runs effects at rest, with a context of their own", Label("EFF-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "remind", fixture("effects/remind.ts")))
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{harness.Calls("remember", map[string]any{"name": "Ada"}), harness.Calls("effects", nil)}, []string{"effects", "remember"})
		say(ctx, t, 1, "go")
		Eventually(ctx, func() (string, error) { return t.Value(ctx, "reminded") }).Should(MatchJSON(`{"about":"tea","atRest":true,"context":0}`))
		Eventually(ctx, func(g Gomega) {
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(texts(ms)).To(ContainElement("system: reminder: tea"))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("stops its run, and gives the turn to the same side again", Label("RUN-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{
			harness.Calls("execution", map[string]any{"again": true}), harness.Answer("one more thing"), harness.Calls("execution", map[string]any{"stop": true}),
		}, []string{"execution"})
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(HaveExactElements("user: go", "assistant:", HavePrefix("tool: "), "assistant: one more thing", "assistant:",
			`tool: {"before":["a",3,3,0,false,["prompt"],5],"flow":"sess_","stopped":[true,"a",true]}`))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveExactElements(HaveField("Status", "succeeded")))
	}, SpecTimeout(2*time.Minute))

	It("terminates its thread", Label("THR-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{harness.Calls("terminate", nil)}, []string{"terminate"})
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(HaveLen(2), "nothing follows the call")
		Eventually(ctx, func() error { return t.Say(ctx, "still there?") }).Should(MatchError(ContainSubstring("terminated")))
	}, SpecTimeout(2*time.Minute))

	It("hooks into messages and calls", Label("HOK-01", "STA-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		var hooks []skeinv1.Hook
		for name, file := range map[skeinv1.HookName]string{
			skeinv1.HookBeforeCreateMessage: "mask", skeinv1.HookFilterMessages: "recent", skeinv1.HookAfterToolCallFailure: "tally", skeinv1.HookPrefilterLLMHistory: "brief",
		} {
			hooks = append(hooks, skeinv1.Hook{Hook: name, Code: skeinv1.CodeSource{Inline: fixture("hooks/" + file + ".ts")}})
		}
		create(ctx, fixtureTool(ns, "recall"), fixtureTool(ns, "relatives"),
			harness.Scripted(ns, "model", harness.Calls("relatives", map[string]any{"reference": "nobody"}), harness.Calls("recall", nil), harness.Answer("done")),
			harness.Prompt(ns, "prompt", "model", "recall", "relatives"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.Hooks = hooks }))
		t := hookedThread(ctx, ns)
		ms := say(ctx, t, 1, "my card is 4111111111")
		Expect(texts(ms)).To(ContainElement("user: my card is ***"))
		content, status := result(ms, "recall")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(MatchJSON(`{"known":["failed"]}`), "the hook has left a note for the tool")
		Expect(last(ms)).To(Equal("done"))
		Expect(t.Log(ctx)).NotTo(ContainElement(HaveField("Type", "hook.failed")))
	}, SpecTimeout(2*time.Minute))

	It("reaches children and parents as ThreadStates", Label("SUB-05", "SUB-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		for _, name := range []string{"relatives", "report-up", "dismiss"} {
			create(ctx, fixtureTool(ns, name))
		}
		create(ctx,
			harness.Scripted(ns, "parent",
				harness.On("begin", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "count to 3", "name": "Counter", "arguments": map[string]any{"to": 3}})),
				harness.After("subagent_create", harness.Answer("begun")), harness.Echo()),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents", "relatives", "dismiss"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Resumable = true })}
			}),
			harness.Scripted(ns, "worker", harness.On("count", harness.Calls("report_up", nil)), harness.Answer("3")),
			harness.Prompt(ns, "worker", "worker", "report-up"),
			harness.Agent(ns, "worker", "worker"),
			harness.NewThread(ns, "thread", "parent"),
		)
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "begin")).To(Succeed())
		ms := takenIn(ctx, t, reported)
		parent, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		subs := subagents(ctx, ns)
		Expect(subs).To(HaveLen(1))
		child := subs[0].Name

		// The child has spoken with its parent out of its own tool.
		Expect(texts(ms)).To(ContainElement(ContainSubstring("halfway")))
		_, err = t.Request("GET", "messages").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		below := onlyChild(ctx, ns)
		said, err := below.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		content, status := result(said, "report_up")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(MatchJSON(`{"parent":"` + string(parent.UID) + `","arguments":{"to":3},"children":1}`))

		content, status = invoke(ctx, t, "relatives", map[string]any{"reference": child})
		Expect(status).To(Equal("success"), content)
		Expect(content).To(MatchJSON(`{"arguments":{"to":3},"ended":"no","execution":null,"first":"count to 3","value":"` + string(parent.UID) + `","own":null,
			"size":14,"back":true,"entry":"Counter","nobody":null,"above":null}`))
		Expect(below.ReadFile(ctx, "/brief.txt")).To(BeEquivalentTo("count to three"))

		content, status = invoke(ctx, t, "dismiss", map[string]any{"reference": child})
		Expect(status).To(Equal("success"), content)
		Expect(content).To(And(ContainSubstring(`"ended":"number"`), ContainSubstring("terminated"), ContainSubstring(`"read":"count to 3"`)))
	}, SpecTimeout(3*time.Minute))
})

// invoke calls a tool of a thread through the runtime API.
func invoke(ctx context.Context, t *harness.Thread, tool string, args map[string]any) (content, status string) {
	GinkgoHelper()
	res, err := golang(t).InvokeTool(ctx, tool, args)
	Expect(err).NotTo(HaveOccurred())
	if res.Status == "error" {
		return res.Error, res.Status
	}
	return res.Result, res.Status
}

var _ = Describe("state.context", Label("STA-08"), func() {
	It("is shared by the tools of a run, and empty in the next run", func(ctx SpecContext) {
		ns := namespace(ctx)
		recall := harness.Calls("recall", nil)
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{harness.Calls("remember", map[string]any{"name": "Ada"}), recall, recall, harness.Answer("bye"), recall}, []string{"remember", "recall"})
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(ContainElements(`tool: {"greeting":"hello, Ada","lookups":1}`, `tool: {"greeting":"hello, Ada","lookups":2}`))
		Expect(last(ms)).To(Equal("bye"))
		ms = say(ctx, t, 2, "again")
		content, _ := result(ms, "recall")
		Expect(content).To(MatchJSON(`{"known":[]}`), "the next run begins with nothing")
	}, SpecTimeout(2*time.Minute))

	It("keeps its serializable values over a wait for a child", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, fixtureTool(ns, "remember"), harness.CodeTool(ns, "left", `export default (state) => state.context;`, nil),
			harness.Scripted(ns, "model",
				harness.Calls("remember", map[string]any{"name": "Ada"}), harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "add"}),
				harness.Calls("left", map[string]any{}), harness.Answer("done")),
			harness.Prompt(ns, "prompt", "model", "remember", "left", "builtin:subagents"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true })}
			}),
			harness.Scripted(ns, "worker", harness.Answer("5")), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"),
			harness.NewThread(ns, "thread", "agent"))
		content, status := result(say(ctx, ready(ctx, cluster.Thread(ns, "thread")), 1, "go"), "left")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(MatchJSON(`{"user":{"name":"Ada","lookups":0}}`))
	}, SpecTimeout(2*time.Minute))

	It("is one for each of the threads that run at the same time", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useFixtures(ctx, ns, []skeinv1.ScriptStep{
			harness.On("remember", harness.Calls("remember", map[string]any{"name": "Ada"})), harness.On("recall", harness.Calls("recall", nil)),
			harness.After("remember", harness.Calls("recall", nil)), harness.After("recall", harness.Answer("ok")),
		}, []string{"remember", "recall"})
		create(ctx, harness.NewThread(ns, "other", "agent"))
		other := ready(ctx, cluster.Thread(ns, "other"))
		content, _ := result(say(ctx, t, 1, "remember"), "recall")
		Expect(content).To(ContainSubstring("hello, Ada"))
		content, _ = result(say(ctx, other, 1, "recall"), "recall")
		Expect(content).To(MatchJSON(`{"known":[]}`))
	}, SpecTimeout(2*time.Minute))
})
