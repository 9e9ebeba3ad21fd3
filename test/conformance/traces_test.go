package conformance

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/test/harness"
)

// traced runs a manager whose spans go to a collector, in place of the suite's.
func traced(ctx context.Context, ns string, args ...string) (*harness.Collector, *harness.Manager) {
	GinkgoHelper()
	collector := harness.NewCollector()
	DeferCleanup(collector.Close)
	m := instead(ctx, harness.ManagerOptions{
		Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: append([]string{"--namespaces=" + ns, "--tool-private-hosts=127.0.0.1"}, args...),
		Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=100"},
	})
	return collector, m
}

// The span of a client, which asks for a trace.
const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
)

// sayWithin sends a message within the client's trace.
func sayWithin(ctx context.Context, t *harness.Thread, text string) {
	GinkgoHelper()
	body, err := json.Marshal(runtimev1.NewMessage{Content: text})
	Expect(err).NotTo(HaveOccurred())
	Expect(t.Request(http.MethodPost, "queue").SetHeader("traceparent", "00-"+callersTrace+"-"+callersSpan+"-01").
		SetHeader("Audit-ID", "request-of-the-spec").Body(body).Do(ctx).Error()).To(Succeed())
}

// only gives the one span with a name.
func only(g Gomega, spans []harness.Span, name string) harness.Span {
	var found []harness.Span
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	g.Expect(found).To(HaveLen(1), "spans %q of %+v", name, spans)
	return found[0]
}

var _ = Describe("Traces", Serial, Label("K8S-06"), func() {
	const said, thought, looked = "canary-asked-71c0", "canary-answered-71c0", "canary-looked-71c0"

	looking := func(ns string) *skeinv1.Tool {
		return harness.CodeTool(ns, "look", `export default { execute: async (state, args) => "`+looked+` " + args.at }`, map[string]any{"at": map[string]any{"type": "string"}})
	}

	It("lead from a client's request through the run, its models, tools and sandbox to its child, without content", func(ctx SpecContext) {
		ns := namespace(ctx)
		collector, _ := traced(ctx, ns)
		create(ctx, looking(ns))
		subs := helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true })
		create(ctx,
			harness.Scripted(ns, "parent",
				harness.On(said, harness.Calls("look", map[string]any{"at": said})), harness.After("look", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": said, "name": "Sum"})), harness.After("subagent_create", harness.Answer(thought))),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents", "look"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) { s.Subagents = []skeinv1.AgentSubagent{subs} }),
			harness.Scripted(ns, "worker", harness.Echo()), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"),
			harness.NewThread(ns, "thread", "parent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		sayWithin(ctx, t, said)
		Expect(last(settled(ctx, t, 1))).To(Equal(thought))

		Eventually(ctx, func(g Gomega) {
			spans := collector.Spans(callersTrace)
			request := only(g, spans, "create threads/queue")
			g.Expect(request.Parent).To(Equal(callersSpan))
			g.Expect(request.Attributes).To(And(HaveKeyWithValue("skein.request.id", "request-of-the-spec"), HaveKeyWithValue("skein.thread.name", "thread")))
			run := only(g, spans, "invoke_agent parent")
			g.Expect(run.Parent).To(Equal(request.ID))
			g.Expect(run.Attributes).To(And(HaveKeyWithValue("gen_ai.operation.name", "invoke_agent"), HaveKeyWithValue("skein.run.status", "succeeded"),
				HaveKeyWithValue("skein.request.id", "request-of-the-spec"), HaveKeyWithValue("gen_ai.agent.name", "parent")))
			look := only(g, spans, "execute_tool look")
			g.Expect(look.Parent).To(Equal(run.ID))
			g.Expect(look.Attributes).To(And(HaveKeyWithValue("gen_ai.operation.name", "execute_tool"), HaveKeyWithValue("gen_ai.tool.name", "look"), HaveKeyWithValue("skein.tool.status", "success")))
			g.Expect(only(g, spans, "sandbox tool/look").Parent).To(Equal(look.ID))
			call := only(g, spans, "execute_tool subagent_create")
			g.Expect(call.Parent).To(Equal(run.ID))
			child := only(g, spans, "invoke_agent worker")
			g.Expect(child.Parent).To(Equal(call.ID))
			g.Expect(only(g, spans, "chat worker").Parent).To(Equal(child.ID))
			chats := 0
			for _, s := range spans {
				if s.Name == "chat parent" {
					chats++
					g.Expect(s.Parent).To(Equal(run.ID))
					g.Expect(s.Attributes).To(And(HaveKeyWithValue("gen_ai.operation.name", "chat"), HaveKeyWithValue("gen_ai.provider.name", "scripted"),
						HaveKeyWithValue("gen_ai.request.model", "parent"), HaveKey("gen_ai.response.finish_reasons")))
				}
			}
			g.Expect(chats).To(Equal(3))
		}).Should(Succeed())
		Expect(collector.Text()).NotTo(Or(ContainSubstring(said), ContainSubstring(thought), ContainSubstring(looked)))
	}, SpecTimeout(5*patience))

	It("go on in the next process after a crash, and their ids are in the log lines of the run", func(ctx SpecContext) {
		ns := namespace(ctx)
		collector, m := traced(ctx, ns)
		begun, release := make(chan struct{}), make(chan struct{})
		server := heldServer(begun, release)
		DeferCleanup(server.Close)
		t := converseWith(ctx, ns, harness.OpenAI(ns, "model", server.URL+"/v1", ""), nil)
		sayWithin(ctx, t, "hello")
		Eventually(ctx, begun).Should(BeClosed())
		m.Kill()
		server.Answer(func(w http.ResponseWriter, _ *http.Request, _ harness.ChatRequest) {
			http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
		})
		close(release)
		Expect(m.Start(ctx)).To(Succeed())
		served(ctx)
		settled(ctx, t, 1)
		Eventually(ctx, func(g Gomega) {
			spans := collector.Spans(callersTrace)
			run := only(g, spans, "invoke_agent agent")
			g.Expect(run.Failed).To(BeTrue())
			chat := only(g, spans, "chat test-model")
			g.Expect(chat.Parent).To(Equal(run.ID))
			g.Expect(chat.Attributes).To(HaveKeyWithValue("error.type", "status"))
		}).Should(Succeed())
		logged, err := os.ReadFile(logFile.Name())
		Expect(err).NotTo(HaveOccurred())
		var failures []map[string]any
		for text := range strings.Lines(string(logged)) {
			line := map[string]any{}
			if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == "run failed" && line["namespace"] == ns {
				failures = append(failures, line)
			}
		}
		Expect(failures).To(ConsistOf(And(HaveKeyWithValue("trace_id", callersTrace), HaveKeyWithValue("request_id", "request-of-the-spec"), HaveKeyWithValue("name", "thread"))))
	}, SpecTimeout(5*patience))

	It("have content when a flag asks for it, without secrets", func(ctx SpecContext) {
		const secret = "canary-secret-71c0a9"
		ns := namespace(ctx)
		collector, _ := traced(ctx, ns, "--tracing-content")
		create(ctx, secretOf(ns, "key", nil, map[string]string{"k": secret}), looking(ns))
		t := converse(ctx, ns, []string{"look"}, []skeinv1.ScriptStep{
			harness.On(said, harness.Calls("look", map[string]any{"at": secret})), harness.After("look", harness.Answer(thought+" "+secret)),
		}, func(s *skeinv1.ThreadSpec) { s.Env = []skeinv1.EnvVar{secretVar("KEY", "key", "k")} })
		sayWithin(ctx, t, said)
		settled(ctx, t, 1)
		Eventually(ctx, func(g Gomega) {
			spans := collector.Spans(callersTrace)
			only(g, spans, "invoke_agent agent")
			look := only(g, spans, "execute_tool look")
			g.Expect(look.Attributes).To(And(HaveKeyWithValue("gen_ai.tool.call.arguments", ContainSubstring("[redacted]")), HaveKeyWithValue("gen_ai.tool.call.result", ContainSubstring(looked))))
		}).Should(Succeed())
		Expect(collector.Text()).To(And(ContainSubstring(said), ContainSubstring(thought)))
		Expect(collector.Text()).NotTo(ContainSubstring(secret))
	}, SpecTimeout(5*patience))

	It("begin with a request to a gateway, and with a delivery to a webhook receiver, whose runs are below it", Label("IDS-05", "EVT-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		collector, _ := traced(ctx, ns, "--gateway-bind-address="+door)
		g := gatewayOf(ns, "chat", "agent", func(s *skeinv1.ThreadGatewaySpec) { s.Strict = true })
		receiver := &skeinv1.WebhookReceiver{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "github"}, Spec: skeinv1.WebhookReceiverSpec{
			Form: skeinv1.WebhookGitHub, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, AgentRef: &skeinv1.LocalRef{Name: "agent"}, PerMinute: 100, MaxBytes: 1000,
		}}
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), g, receiver)
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
		isReady(ctx, receiver, func() []metav1.Condition { return receiver.Status.Conditions })

		By("asking as a stranger")
		parent := "00-" + callersTrace + "-" + callersSpan + "-01"
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", `{"content":"x"}`, "x-thread-id", "thrd_00000000000000000000000000;AAAA", "traceparent", parent).status).To(Equal(401))
		Expect(knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/nothing", "", "traceparent", parent).status).To(Equal(404))
		Expect(knock(ctx, http.DefaultClient, "POST", ns, "github/v1/webhook", "{}", "X-GitHub-Delivery", "1", "X-Hub-Signature-256", "sha256=00", "traceparent", parent).status).To(Equal(401))
		By("asking as one may")
		asked := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", `{"content":"`+said+`"}`, "traceparent", parent)
		Expect(asked.status).To(Equal(200), asked.body)
		push := `{"said":"` + said + `"}`
		told := knock(ctx, http.DefaultClient, "POST", ns, "github/v1/webhook", push, "X-GitHub-Event", "push", "X-GitHub-Delivery", "2", "X-Hub-Signature-256", gitHubSignature(firstKey, push), "traceparent", parent)
		Expect(told.status).To(Equal(202), told.body)

		Eventually(ctx, func(o Gomega) {
			all := collector.Spans("")
			for name, r := range map[string]reply{"gateway v1/message": asked, "webhookreceiver v1/webhook": told} {
				request := only(o, all, name)
				o.Expect(request.Parent).To(BeEmpty(), "strangers do not choose their trace")
				o.Expect(request.Attributes).To(And(HaveKeyWithValue("skein.namespace", ns), HaveKeyWithValue("skein.request.id", r.session()), HaveKeyWithValue("skein.thread.name", Not(BeEmpty())),
					HaveKeyWithValue("http.request.method", "POST"), HaveKeyWithValue("http.response.status_code", ContainSubstring(strconv.Itoa(r.status)))))
				run := only(o, collector.Spans(request.Trace), "invoke_agent agent")
				o.Expect(run.Parent).To(Equal(request.ID))
				o.Expect(run.Attributes).To(And(HaveKeyWithValue("skein.request.id", r.session()), HaveKeyWithValue("skein.thread.name", request.Attributes["skein.thread.name"])))
				o.Expect(only(o, collector.Spans(request.Trace), "chat model").Parent).To(Equal(run.ID))
			}
		}).Should(Succeed())
		Expect(collector.Spans(callersTrace)).To(BeEmpty())
		Expect(collector.Text()).NotTo(ContainSubstring(said))
	}, SpecTimeout(5*patience))

	It("are beside metrics that count the run, its model and its tool, and beside profiles", func(ctx SpecContext) {
		ns := namespace(ctx)
		port, err := scratch.Port()
		Expect(err).NotTo(HaveOccurred())
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		other, err := scratch.Port()
		Expect(err).NotTo(HaveOccurred())
		profiles := net.JoinHostPort("127.0.0.1", strconv.Itoa(other))
		traced(ctx, ns, "--metrics-bind-address="+address, "--pprof-bind-address="+profiles)
		create(ctx, looking(ns))
		t := converse(ctx, ns, []string{"look"}, []skeinv1.ScriptStep{
			harness.On(said, harness.Calls("look", map[string]any{"at": "x"})), harness.After("look", harness.Answer(thought)), harness.On("fail", skeinv1.ScriptStep{Error: "no", Status: http.StatusBadRequest}),
		})
		say(ctx, t, 1, said)
		Expect(t.Say(ctx, "fail")).To(Succeed())

		By("paying for a model, failing an effect once, and having threads that go or cannot come")
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			harness.Say(w, req.Model, "counted")
		})
		DeferCleanup(server.Close)
		dear := harness.OpenAI(ns, "dear", server.URL, "")
		dear.Spec.Pricing = &skeinv1.ModelPricing{Input: "100", Output: "1000"}
		var calls atomic.Int32
		counter := toolServer(func(w http.ResponseWriter, _ *http.Request, _ string) {
			if calls.Add(1) == 1 {
				http.Error(w, "not now", http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "counted")
		})
		create(ctx, dear, harness.Prompt(ns, "dear", "dear"), harness.Agent(ns, "dear", "dear"), harness.NewThread(ns, "paid", "dear"),
			harness.NewThread(ns, "orphan", "nobody"), harness.NewThread(ns, "gone", "agent"),
			harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: counter.URL}, nil),
			scheduled(ns, "count", skeinv1.ScheduledEffectSpec{
				CallTool: &skeinv1.EffectToolCall{Name: "count"}, Schedules: never, RunOnCreation: true,
				Retry: &skeinv1.EffectRetry{Attempts: 3, Backoff: &metav1.Duration{Duration: 100 * time.Millisecond}},
			}))
		say(ctx, ready(ctx, cluster.Thread(ns, "paid")), 1, "hello")
		Expect(ready(ctx, cluster.Thread(ns, "gone")).Delete(ctx)).To(Succeed())
		get := func(g Gomega, url string) string {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			g.Expect(err).NotTo(HaveOccurred())
			resp, err := http.DefaultClient.Do(req)
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = resp.Body.Close() }()
			data, err := io.ReadAll(resp.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resp.StatusCode).To(Equal(http.StatusOK), string(data))
			return string(data)
		}
		Expect(get(Default, "http://"+profiles+"/debug/pprof/goroutine?debug=1")).To(ContainSubstring("goroutine profile: total"))
		Expect(get(Default, "http://"+profiles+"/debug/pprof/profile?seconds=1")).To(HavePrefix("\x1f\x8b"), "what go tool pprof reads: protocol buffers, compressed")
		Eventually(ctx, func(g Gomega) {
			text := get(g, "http://"+address+"/metrics")
			var missing []string
			for _, line := range []string{
				`skein_runs_total{namespace="` + ns + `",status="succeeded"} 2`,
				`skein_model_calls_total{model="model",namespace="` + ns + `",outcome="success",provider="scripted"} 2`,
				`skein_tool_calls_total{namespace="` + ns + `",status="success",tool="look"} 1`,
				"skein_store_commit_duration_seconds_count ", "skein_store_commit_transactions_count ",
				"skein_inbox_items 1\n", "skein_inbox_oldest_seconds 0\n", // the orphan may have a hook, which waits until its agent is known, and has no age
				"skein_store_bytes ", "skein_contents_bytes ", `skein_threads{namespace="` + ns + `"} 3`, `skein_store_rows{table="message"} `, "skein_engine_lease_losses_total 0",
				`skein_runs_total{namespace="` + ns + `",status="failed"} 1`, `skein_run_duration_seconds_count{status="succeeded"} 2`, `skein_run_duration_seconds_count{status="failed"} 1`,
				`skein_model_calls_total{model="model",namespace="` + ns + `",outcome="status",provider="scripted"} 1`,
				`skein_model_call_duration_seconds_count{model="dear",namespace="` + ns + `",provider="openai"} 1`,
				`skein_threads_not_ready{namespace="` + ns + `",reason="` + skeinv1.ReasonReferenceNotFound + `"} 1`,
				`skein_effect_firings_total{namespace="` + ns + `",status="succeeded"} 1`, `skein_effect_retries_total{namespace="` + ns + `"} 1`, "skein_thread_purges_total 1",
			} {
				if !strings.Contains(text, "\n"+line) {
					missing = append(missing, line)
				}
			}
			g.Expect(missing).To(BeEmpty(), text)
			for _, counted := range []string{
				`skein_model_tokens_total{model="dear",namespace="` + ns + `",type="input"}`, `skein_model_tokens_total{model="dear",namespace="` + ns + `",type="output"}`,
				`skein_model_cost_total{model="dear",namespace="` + ns + `"}`,
			} {
				g.Expect(text).To(MatchRegexp(`(?m)^` + regexp.QuoteMeta(counted) + ` .*[1-9]`))
			}
			page, err := os.ReadFile(filepath.Join(harness.Root(), "docs", "metrics.md"))
			g.Expect(err).NotTo(HaveOccurred())
			for line := range strings.Lines(text) {
				if name, ok := strings.CutPrefix(line, "# TYPE skein_"); ok {
					name, _, _ = strings.Cut(name, " ")
					g.Expect(string(page)).To(ContainSubstring("\n| `skein_" + name + "` |"))
				}
				if strings.HasPrefix(line, "skein_") && !strings.Contains(line, "{table=") {
					g.Expect(line).NotTo(ContainSubstring(`="`+t.Name+`"`), "no series has the name of a thread")
				}
			}
		}).Should(Succeed())
	}, SpecTimeout(5*patience))
})
