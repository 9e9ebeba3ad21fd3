package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/test/harness"
)

// modelled makes a thread whose model is m, with others beside it.
func modelled(ctx context.Context, ns string, m *skeinv1.Model, others ...client.Object) *harness.Thread {
	GinkgoHelper()
	create(ctx, append(others, m, harness.Prompt(ns, "prompt", m.Name), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))...)
	return ready(ctx, cluster.Thread(ns, "thread"))
}

var _ = Describe("Models", func() {
	It("that fail are replaced by their fallbacks, and the answer says so", Label("AGT-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		first := harness.Scripted(ns, "first", skeinv1.ScriptStep{Error: "overloaded", Status: 529, Times: ptr.To[int32](0)})
		first.Spec.MaxRetries = ptr.To[int32](0)
		first.Spec.Fallbacks = []skeinv1.LocalRef{{Name: "second"}, {Name: "third"}}
		second := harness.OpenAI(ns, "second", "http://127.0.0.1:1/v1", "")
		ms := say(ctx, modelled(ctx, ns, first, second, harness.Scripted(ns, "third", harness.Echo())), 1, "hello")
		Expect(last(ms)).To(Equal("echo: hello"))
		metadata := ms[len(ms)-1].Metadata
		Expect(metadata).To(And(HaveKeyWithValue("model", "third"), HaveKey("model_failures")))
		Expect(metadata["model_failures"]).To(HaveExactElements("first: overloaded", HavePrefix("second: the endpoint http://127.0.0.1:1/v1 cannot be reached")))
	}, SpecTimeout(2*time.Minute))

	It("retry temporary errors, which do not show in the conversation", Label("AGT-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		ms := say(ctx, modelled(ctx, ns, harness.Scripted(ns, "model",
			skeinv1.ScriptStep{Content: "done at last", Error: "slow down", Status: 429, RetryAfter: &metav1.Duration{Duration: 10 * time.Millisecond}, Failures: ptr.To[int32](1)},
			skeinv1.ScriptStep{Content: "said in full", BreaksAfter: ptr.To[int32](4), Failures: ptr.To[int32](1)})), 1, "hello")
		Expect(texts(ms)).To(Equal([]string{"user: hello", "assistant: done at last"}))
		Expect(last(say(ctx, cluster.Thread(ns, "thread"), 2, "more"))).To(Equal("said in full"))
	}, SpecTimeout(2*time.Minute))

	It("get no more of a conversation than fits, also as a fallback, and the log says what was left out", Label("AGT-06", "AGT-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		read := func(req harness.ChatRequest) (size int) {
			for _, m := range req.Messages {
				size += len(m.Content)
			}
			return size
		}
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			if size := read(req); size > 3000 {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"error":{"message":"This model's maximum context length is 750 tokens. However, your messages resulted in %d tokens.","code":"context_length_exceeded"}}`, size/4)
				return
			}
			harness.Say(w, req.Model, "read")
		})
		DeferCleanup(server.Close)
		first := harness.OpenAI(ns, "first", server.URL, "")
		first.Spec.Options = &skeinv1.ModelOptions{MaxTokens: ptr.To[int32](50)}
		first.Spec.Fallbacks = []skeinv1.LocalRef{{Name: "small"}}
		small := harness.Scripted(ns, "small", skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: "{{ .NewMessages }} messages"})
		small.Spec.Capabilities = &skeinv1.ModelCapabilities{ContextWindow: 500, MaxOutputTokens: 50}
		t := modelled(ctx, ns, first, small)
		trimmed := func() (out []map[string]any) {
			GinkgoHelper()
			log, err := t.Log(ctx)
			Expect(err).NotTo(HaveOccurred())
			for _, e := range log {
				if e.Type == runtimev1.EventContextTrimmed {
					var data map[string]any
					Expect(json.Unmarshal(e.Data, &data)).To(Succeed())
					out = append(out, data)
				}
			}
			return out
		}
		By("asking again with less after the provider has refused the length")
		for i := range 4 {
			Expect(last(say(ctx, t, i+1, strings.Repeat("x", 1000)))).To(Equal("read"))
		}
		asked, _ := server.Requests()
		Expect(asked).To(ContainElement(WithTransform(read, BeNumerically(">", 3000))), "it did refuse")
		Expect(trimmed()).To(ContainElement(And(HaveKeyWithValue("leftOut", BeNumerically(">=", 2)), HaveKeyWithValue("contextWindow", 750.0))))

		By("asking a fallback with a smaller window")
		server.Answer(func(w http.ResponseWriter, _ *http.Request, _ harness.ChatRequest) {
			http.Error(w, "busy", http.StatusServiceUnavailable)
		})
		Expect(last(say(ctx, t, 5, strings.Repeat("y", 900)))).To(Equal("2 messages"), "the system prompt and the newest")
		Expect(trimmed()).To(ContainElement(And(HaveKeyWithValue("leftOut", 8.0), HaveKeyWithValue("contextWindow", 500.0), HaveKeyWithValue("model", "small"))))
	}, SpecTimeout(2*time.Minute))

	It("show the cost of each answer and each run", Label("AGT-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		m := harness.Scripted(ns, "model", skeinv1.ScriptStep{Content: "dear", Times: ptr.To[int32](0),
			Usage: &skeinv1.ScriptUsage{InputTokens: 10_000, CachedTokens: 7000, CacheWriteTokens: 2000, OutputTokens: 100}})
		m.Spec.Pricing = &skeinv1.ModelPricing{Input: "3", Output: "15", CachedInput: "0.30", CacheWrite: "3.75"}
		t := modelled(ctx, ns, m)
		say(ctx, t, 1, "hello")
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(runs[0].Usage)).To(MatchJSON(`{"inputTokens":10000,"outputTokens":100,"cachedTokens":7000,"cacheWriteTokens":2000,"cost":0.0141,"models":["model"]}`))
	}, SpecTimeout(2*time.Minute))

	It("speak Anthropic's Messages API with the key of a Secret", Label("AGT-06"), func(ctx SpecContext) {
		const canary = "sk-ant-canary-77c1"
		ns := namespace(ctx)
		keys := make(chan string, 10)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys <- r.Header.Get("X-Api-Key")
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range []string{
				`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":3,"output_tokens":1}}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Good day."}}`,
				`{"type":"content_block_stop","index":0}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}`,
				`{"type":"message_stop"}`,
			} {
				kind, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
				_, _ = w.Write([]byte("event: " + kind + "\ndata: " + e + "\n\n"))
			}
		}))
		DeferCleanup(server.Close)
		m := harness.OpenAI(ns, "model", server.URL, "key")
		m.Spec.Provider = skeinv1.ProviderAnthropic
		t := modelled(ctx, ns, m, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": canary}})
		Expect(last(say(ctx, t, 1, "hello"))).To(Equal("Good day."))
		Expect(<-keys).To(Equal(canary))
	}, SpecTimeout(2*time.Minute))

	It("that are declared wrongly are refused, or say what is missing", Label("AGT-06", "K8S-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		for want, edit := range map[string]func(*skeinv1.ModelSpec){
			"spec.api belongs to provider openai": func(s *skeinv1.ModelSpec) { s.API = skeinv1.APIResponses },
			"spec.sessions belongs to api responses": func(s *skeinv1.ModelSpec) {
				*s = skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI, Model: "m", Sessions: ptr.To(true)}
			},
			"needs spec.model": func(s *skeinv1.ModelSpec) { *s = skeinv1.ModelSpec{Provider: skeinv1.ProviderAnthropic} },
			"has no endpoint":  func(s *skeinv1.ModelSpec) { s.Endpoint = "http://x" },
			"give the API key by spec.credentials": func(s *skeinv1.ModelSpec) {
				*s = skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI, Model: "m", Headers: []skeinv1.ModelHeader{{Name: "Authorization", Value: "x"}}}
			},
			"spec.pricing.input": func(s *skeinv1.ModelSpec) { s.Pricing = &skeinv1.ModelPricing{Input: "cheap"} },
		} {
			bad := harness.Scripted(ns, "bad", harness.Echo())
			edit(&bad.Spec)
			Expect(cluster.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(want)))
		}
		m := harness.Scripted(ns, "model", harness.Echo())
		m.Spec.Fallbacks = []skeinv1.LocalRef{{Name: "other"}}
		create(ctx, m)
		is := func(want OmegaMatcher) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				var got skeinv1.Model
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(m), &got)).To(Succeed())
				g.Expect(got.Status.Conditions).To(ContainElement(want))
			}).WithContext(ctx).Should(Succeed())
		}
		is(And(condition("Ready", metav1.ConditionFalse, "ReferenceNotFound"), HaveField("Message", ContainSubstring(`Model "other" does not exist`))))
		other := harness.OpenAI(ns, "other", "http://127.0.0.1:1/v1", "key")
		create(ctx, other)
		is(And(condition("Ready", metav1.ConditionFalse, "ReferenceNotFound"), HaveField("Message", ContainSubstring(`"key"`))))
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": "sk-canary-0192"}})
		is(condition("Ready", metav1.ConditionTrue))
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("A provider's conversation", func() {
	// Each answer tells which session it went on with, and how many messages that did not know.
	told := skeinv1.ScriptStep{Content: "{{ .Session }}/{{ .NewMessages }}", Times: ptr.To[int32](0)}
	keeping := func(ctx context.Context, steps ...skeinv1.ScriptStep) *harness.Thread {
		GinkgoHelper()
		ns := namespace(ctx)
		m := harness.Scripted(ns, "model", steps...)
		m.Spec.Sessions = ptr.To(true)
		return modelled(ctx, ns, m)
	}

	It("continues, and begins again when it is lost or the log was changed", Label("RUN-06"), func(ctx SpecContext) {
		forgets := told
		forgets.ForgetsSession = true
		t := keeping(ctx, harness.On("forget", forgets), told)
		Expect(last(say(ctx, t, 1, "one"))).To(Equal("/2"))
		ms := say(ctx, t, 2, "two")
		Expect(last(ms)).To(Equal("session-3/1"), "only what is new is sent")
		Expect(last(say(ctx, t, 3, "forget"))).To(Equal("/6"), "the whole conversation, and nobody is told")
		Expect(last(say(ctx, t, 4, "four"))).To(Equal("session-7/1"))
		update(ctx, t, ms[0].ID, runtimev1.MessageUpdates{Content: ptr.To("another one")})
		Expect(last(say(ctx, t, 5, "five"))).To(Equal("/10"), "the log is the truth")
		Expect(last(say(ctx, t, 6, "six"))).To(Equal("session-11/1"))
	}, SpecTimeout(2*time.Minute))

	It("continues after an error, which is in the log and fails the run", Label("RUN-05", "RUN-06"), func(ctx SpecContext) {
		t := keeping(ctx, harness.On("fail", skeinv1.ScriptStep{Error: "out of order"}), told)
		Expect(last(say(ctx, t, 1, "one"))).To(Equal("/2"))
		ms := say(ctx, t, 2, "fail")
		Expect(last(ms)).To(Equal("(error: out of order)"))
		Expect(ms[len(ms)-1].Status).To(Equal(runtimev1.MessageFailed))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs[0]).To(And(HaveField("Status", runtimev1.RunFailed), HaveField("Reason", "ModelFailed"), HaveField("Message", "out of order")))
		Expect(last(say(ctx, t, 3, "three"))).To(Equal("session-3/3"), "what was said since is new to it")
	}, SpecTimeout(2*time.Minute))
})

// aimock starts a server by others that speaks the providers' APIs, and gives its address.
func aimock(ctx context.Context) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "npm.sh"), "install", "aimock").Output()
	Expect(err).NotTo(HaveOccurred())
	port, err := scratch.Port()
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(strings.TrimSpace(string(out)), "node_modules", "@copilotkit", "aimock", "dist", "cli.js")
	cmd := exec.Command("node", program, "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--strict", "--validate-on-load",
		"--fixtures", filepath.Join(harness.Root(), "test", "fixtures", "aimock"))
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	Eventually(func() error {
		res, err := http.Get(url + "/health")
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}).WithContext(ctx).Should(Succeed())
	return url
}

var _ = Describe("A model server of another project", Label("AGT-06"), func() {
	DescribeTable("accepts requests, and its answers and errors are understood", func(ctx SpecContext, provider skeinv1.ModelProvider, api skeinv1.ModelAPI, path string) {
		ns := namespace(ctx)
		m := harness.OpenAI(ns, "model", aimock(ctx)+path, "key")
		m.Spec.Provider, m.Spec.API = provider, api
		create(ctx, m,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": "sk-test-aimock"}},
			harness.Prompt(ns, "prompt", "model", "builtin:files"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		ms := say(ctx, t, 1, "which files are there?")
		_, status := result(ms, "list_files")
		Expect(status).To(Equal("success"))
		Expect(last(ms)).To(Equal("There are no files yet, says another server."))
		Expect(ms[1].Usage).NotTo(BeEmpty())
		Expect(last(say(ctx, t, 2, "are you well?"))).To(And(HavePrefix("(error: "), ContainSubstring("status 429"), ContainSubstring("too many requests")))
	},
		Entry("by chat completions", skeinv1.ProviderOpenAI, skeinv1.APIChat, "/v1", SpecTimeout(3*time.Minute)),
		Entry("by the responses API", skeinv1.ProviderOpenAI, skeinv1.APIResponses, "/v1", SpecTimeout(3*time.Minute)),
		Entry("by Anthropic's messages", skeinv1.ProviderAnthropic, skeinv1.ModelAPI(""), "", SpecTimeout(3*time.Minute)),
	)
})

var _ = Describe("A limit of a model", Serial, Label("AGT-06"), func() {
	It("holds over all replicas, and every waiting run gets its turn", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, rs := onPostgres(ctx, ns, 2)
		h := newHanging()
		m := harness.OpenAI(ns, "model", h.URL+"/v1", "")
		m.Spec.Timeout = &metav1.Duration{Duration: 5 * time.Minute}
		m.Spec.Limits = &skeinv1.ModelLimits{MaxConcurrent: 2}
		create(ctx, m, harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		names := []string{"t-0", "t-1", "t-2", "t-3", "t-4", "t-5"}
		for _, name := range names {
			create(ctx, harness.NewThread(ns, name, "agent"))
			ready(ctx, cluster.Thread(ns, name))
		}
		for i, name := range names {
			_, err := rs[i%2].api.Thread(ns, name).Send(ctx, "hello")
			Expect(err).NotTo(HaveOccurred())
		}
		running := func(name string) bool {
			return newest(ctx, rs[0].api.Thread(ns, name)).Status == runtimev1.RunRunning
		}
		for answered := range names {
			Eventually(h.asked.Load).WithContext(ctx).Should(BeNumerically(">=", int64(answered+1)))
			if answered == 0 { // all are under way by now, and two at the model
				for _, name := range names {
					Eventually(func(g Gomega) {
						runs, err := rs[0].api.Thread(ns, name).Runs(ctx, runtimeclient.Page{})
						g.Expect(err).NotTo(HaveOccurred())
						g.Expect(runs.Runs).NotTo(BeEmpty())
					}).WithContext(ctx).Should(Succeed())
					Expect(running(name)).To(BeTrue())
				}
			}
			Expect(h.asked.Load()).To(BeNumerically("<=", int64(answered+2)), "never more than two at once")
			h.speak <- struct{}{}
		}
		for _, name := range names {
			Eventually(running).WithContext(ctx).WithArguments(name).Should(BeFalse())
			Expect(newest(ctx, rs[0].api.Thread(ns, name)).Status).To(Equal(runtimev1.RunSucceeded))
		}
	}, NodeTimeout(6*patience))
})
