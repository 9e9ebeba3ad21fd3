package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// refOf names a key of a Secret.
func refOf(secret, key string) corev1.SecretKeySelector {
	return corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}
}

// toolServer answers the requests of HTTP tools until the spec ends.
func toolServer(answer func(w http.ResponseWriter, r *http.Request, body string)) *harness.ToolServer {
	s := harness.NewToolServer(answer)
	DeferCleanup(s.Close)
	return s
}

// stringProperty is a property of a schema.
var stringProperty = map[string]any{"type": "string"}

var _ = Describe("HTTP tools", Label("TOL-02"), func() {
	It("make the request that their object declares, with the model's arguments and the Secrets' values", func(ctx SpecContext) {
		ns := namespace(ctx)
		server := toolServer(func(w http.ResponseWriter, r *http.Request, body string) {
			if r.Header.Get("X-Api-Key") != "key-of-the-shop" || r.Header.Get("Authorization") != "Bearer token-of-the-shop" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(w, `{"order":{"id":"A/1","lines":[{"sku":"x"},{"sku":"y"}]}}`)
		})
		create(ctx, secretOf(ns, "shop", nil, map[string]string{"key": "key-of-the-shop\n", "token": "token-of-the-shop", "signing": "signing-key"}))
		t := useTool(ctx, harness.HTTPTool(ns, "findorder", skeinv1.HTTPTool{
			URL: server.URL + "/orders/{{ arguments.id }}?expand={{ arguments.expand }}", Auth: &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{SecretKeyRef: refOf("shop", "token")}},
			Headers: []skeinv1.ToolHeader{{Name: "X-Api-Key", SecretKeyRef: ptr.To(refOf("shop", "key"))}}, Signing: &skeinv1.HTTPSigning{SecretKeyRef: refOf("shop", "signing")},
			Result: &skeinv1.HTTPResult{JSONPath: "{.order.lines[*].sku}"},
		}, map[string]any{"id": stringProperty, "expand": stringProperty}, "id"), map[string]any{"id": "A/1"})
		ms := say(ctx, t, 1, "go")
		content, status := result(ms, "findorder")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(MatchJSON(`["x","y"]`))
		Expect(last(ms)).To(Equal("done"))
		requests := server.Requests()
		Expect(requests).To(HaveLen(1))
		Expect(requests[0].Method + " " + requests[0].URI).To(Equal("GET /orders/A%2F1"))
		Expect(requests[0].Header.Get("Idempotency-Key")).NotTo(BeEmpty())
		Expect(requests[0].Header.Get("Skein-Signature")).To(HavePrefix("v1="))
	}, SpecTimeout(2*time.Minute))

	It("check their arguments, and return every failure to the model", func(ctx SpecContext) {
		ns := namespace(ctx)
		server := toolServer(func(w http.ResponseWriter, _ *http.Request, _ string) {
			http.Error(w, "the warehouse burns", http.StatusServiceUnavailable)
		})
		create(ctx, harness.HTTPTool(ns, "gone", skeinv1.HTTPTool{URL: "http://127.0.0.1:1/"}, nil))
		create(ctx, harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: server.URL}, map[string]any{"n": map[string]any{"type": "integer"}}, "n"))
		t := converse(ctx, ns, []string{"count", "gone"}, []skeinv1.ScriptStep{
			{ToolCalls: []skeinv1.ScriptToolCall{{Name: "count", Arguments: harness.Raw(map[string]any{"n": "many"})}, {Name: "counts", Arguments: harness.Raw(map[string]any{"n": 1})},
				{Name: "gone", Arguments: harness.Raw(map[string]any{})}}},
			harness.Calls("count", map[string]any{"n": 1}), harness.Answer("survived"),
		})
		ms := say(ctx, t, 1, "go")
		Expect(last(ms)).To(Equal("survived"))
		var results []string
		for _, m := range ms {
			if m.Role == runtimev1.RoleTool {
				Expect(m.ToolStatus).To(Equal("error"))
				results = append(results, *m.Content)
			}
		}
		Expect(results).To(HaveExactElements(
			And(ContainSubstring("/n"), ContainSubstring("integer")),
			ContainSubstring("did you mean count?"),
			ContainSubstring("127.0.0.1"),
			And(ContainSubstring("503"), ContainSubstring("the warehouse burns")),
		))
		Expect(server.Requests()).To(HaveLen(1), "only the last call was made")
	}, SpecTimeout(2*time.Minute))

	It("carry the same key when a crash has a call made again", Label("RUN-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		var held atomic.Bool
		arrived := make(chan struct{}, 1)
		over := make(chan struct{})
		server := toolServer(func(w http.ResponseWriter, r *http.Request, _ string) {
			if held.CompareAndSwap(false, true) {
				arrived <- struct{}{}
				select {
				case <-over:
				case <-r.Context().Done():
				}
				return
			}
			_, _ = io.WriteString(w, "booked")
		})
		DeferCleanup(func() { close(over) })
		t := useTool(ctx, harness.HTTPTool(ns, "book", skeinv1.HTTPTool{Method: "POST", URL: server.URL}, nil), map[string]any{})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, arrived).Should(Receive())
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := t.Messages(ctx); return err }).Should(Succeed(), "the API is reached again")
		ms := settled(ctx, t, 1)
		content, status := result(ms, "book")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(Equal("booked"))
		Expect(texts(ms)).To(Equal([]string{"user: go", "assistant:", "tool: booked", "assistant: done"}))
		requests := server.Requests()
		Expect(requests).To(HaveLen(2))
		Expect(requests[1].Header.Get("Idempotency-Key")).To(And(Not(BeEmpty()), Equal(requests[0].Header.Get("Idempotency-Key"))))
		// Another call has another.
		_, err := golang(t).InvokeTool(ctx, "book", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Requests()[2].Header.Get("Idempotency-Key")).NotTo(Equal(requests[0].Header.Get("Idempotency-Key")))
	}, SpecTimeout(3*time.Minute))

	It("cancel their request when the run is stopped", Label("RUN-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		arrived, gone := make(chan struct{}, 1), make(chan struct{}, 1)
		server := toolServer(func(_ http.ResponseWriter, r *http.Request, _ string) {
			arrived <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		})
		t := useTool(ctx, harness.HTTPTool(ns, "wait", skeinv1.HTTPTool{URL: server.URL}, nil), map[string]any{})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, arrived).Should(Receive())
		_, err := golang(t).Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, gone).Should(Receive(), "the request was given up")
		settled(ctx, t, 1)
	}, SpecTimeout(2*time.Minute))

	It("are ready once their Secrets are there, and say what is wrong with them", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		waits := harness.HTTPTool(ns, "waits", skeinv1.HTTPTool{URL: "https://x.test/", Auth: &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{SecretKeyRef: refOf("later", "token")}}}, nil)
		wrong := harness.HTTPTool(ns, "wrong", skeinv1.HTTPTool{URL: "https://x.test/{{ id }}"}, nil)
		create(ctx, waits, wrong)
		ready := func(t *skeinv1.Tool, m OmegaMatcher) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, key(t), t)).To(Succeed())
				g.Expect(t.Status.Conditions).To(ContainElement(m))
			}).Should(Succeed())
		}
		ready(waits, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound), HaveField("Message", And(ContainSubstring("later"), ContainSubstring("spec.http.auth")))))
		ready(wrong, And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", And(ContainSubstring("{{ id }}"), ContainSubstring("{{ arguments.NAME }}")))))
		create(ctx, secretOf(ns, "later", nil, map[string]string{"token": "t"}))
		ready(waits, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	}, SpecTimeout(2*time.Minute))

	DescribeTable("are refused at once when their object is wrong", Label("K8S-02"), func(ctx SpecContext, edit func(*skeinv1.ToolSpec), want string) {
		tool := harness.HTTPTool("default", "wrong", skeinv1.HTTPTool{URL: "https://x.test/"}, nil)
		edit(&tool.Spec)
		Expect(cluster.Client.Create(ctx, tool)).To(MatchError(ContainSubstring(want)))
	},
		Entry("both code and http", func(s *skeinv1.ToolSpec) { s.Code = &skeinv1.CodeSource{Inline: "export default 1"} }, "exactly one of", SpecTimeout(2*time.Minute)),
		Entry("neither code nor http", func(s *skeinv1.ToolSpec) { s.HTTP = nil }, "exactly one of", SpecTimeout(2*time.Minute)),
		Entry("no description", func(s *skeinv1.ToolSpec) { s.Description = "" }, "description", SpecTimeout(2*time.Minute)),
		Entry("a placeholder in the host", func(s *skeinv1.ToolSpec) { s.HTTP.URL = "https://{{ arguments.host }}/" }, "spec.http.url", SpecTimeout(2*time.Minute)),
		Entry("another scheme", func(s *skeinv1.ToolSpec) { s.HTTP.URL = "file:///etc/passwd" }, "spec.http.url", SpecTimeout(2*time.Minute)),
		Entry("a password in the URL", func(s *skeinv1.ToolSpec) { s.HTTP.URL = "https://a:b@x.test/" }, "spec.http.url", SpecTimeout(2*time.Minute)),
		Entry("a header that Skein sets", func(s *skeinv1.ToolSpec) {
			s.HTTP.Headers = []skeinv1.ToolHeader{{Name: "Idempotency-Key", Value: ptr.To("x")}}
		}, "set by Skein", SpecTimeout(2*time.Minute)),
		Entry("a header without a value", func(s *skeinv1.ToolSpec) { s.HTTP.Headers = []skeinv1.ToolHeader{{Name: "X"}} }, "set exactly one of value and secretKeyRef", SpecTimeout(2*time.Minute)),
		Entry("two kinds of authentication", func(s *skeinv1.ToolSpec) {
			s.HTTP.Auth = &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{SecretKeyRef: refOf("a", "b")}, Header: &skeinv1.ToolAuthHeader{Name: "X", SecretKeyRef: refOf("a", "b")}}
		}, "exactly one of basic, bearer and header", SpecTimeout(2*time.Minute)),
	)

	It("hide secrets that a server returns in answers, errors and redirects", Label("ENV-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		c := newCanaries("header", "basic", "signing", "VARIABLE")
		server := toolServer(func(w http.ResponseWriter, r *http.Request, body string) {
			all, _ := json.Marshal(r.Header)
			switch r.URL.Query().Get("how") {
			case "redirect":
				w.Header().Set("Location", "http://localhost:1/?all="+r.URL.Query().Get("v")+r.Header.Get("X-Key"))
				w.WriteHeader(http.StatusFound)
				return
			case "break":
				panic(http.ErrAbortHandler)
			case "error":
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = fmt.Fprintf(w, "uri %s headers %s body %s key %s", r.RequestURI, all, body, r.Header.Get("X-Key"))
		})
		create(ctx, secretOf(ns, "s", nil, map[string]string{"header": c["header"], "basic": c["basic"], "signing": c["signing"], "variable": c["VARIABLE"]}))
		tool := harness.HTTPTool(ns, "leak", skeinv1.HTTPTool{
			Method: "POST", URL: server.URL + "/?how={{ arguments.how }}&v={{ env.VARIABLE }}", Headers: []skeinv1.ToolHeader{{Name: "X-Key", SecretKeyRef: ptr.To(refOf("s", "header"))}},
			Auth: &skeinv1.ToolAuth{Basic: &skeinv1.ToolBasicAuth{Username: "ada", SecretKeyRef: refOf("s", "basic")}}, Signing: &skeinv1.HTTPSigning{SecretKeyRef: refOf("s", "signing")},
			Body: &skeinv1.HTTPBody{Template: `{"v":"{{ env.VARIABLE }}"}`},
		}, map[string]any{"how": stringProperty}, "how")
		create(ctx, tool, harness.Scripted(ns, "model", harness.On("^leak", harness.Calls("leak", map[string]any{"how": "{{ slice .Last.Content 5 }}"})), harness.After("leak", harness.Answer("it said {{ .Last.Content }}"))),
			harness.Prompt(ns, "prompt", "model", "leak"), harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) { s.Env = []skeinv1.EnvVar{secretVar("VARIABLE", "s", "variable")} }),
			harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		var answers strings.Builder
		for i, how := range []string{"return", "error", "break", "redirect"} {
			ms := say(ctx, t, i+1, "leak "+how)
			b, err := json.Marshal(ms)
			Expect(err).NotTo(HaveOccurred())
			answers.Write(b)
			res, err := golang(t).InvokeTool(ctx, "leak", map[string]string{"how": how})
			Expect(err).NotTo(HaveOccurred())
			fmt.Fprintf(&answers, "%+v", res)
		}
		Expect(server.Requests()).To(HaveLen(8))
		Expect(answers.String()).To(MatchRegexp(`\[redacted\](.|\n)*\[redacted\](.|\n)*\[redacted\]`), "the server did have them")
		expectNowhere(ctx, c, ns, answers.String()+everyAnswer(ctx, t))
	}, SpecTimeout(3*time.Minute))
})

// expectNowhere looks for canaries in texts, in the objects of a namespace, the manager's log and all that it stored.
func expectNowhere(ctx context.Context, c canaries, ns, said string) {
	GinkgoHelper()
	Expect(c.in(said)).To(BeEmpty(), "answers of the runtime API")
	objects, err := cluster.Kubectl(ctx, "-n", ns, "get", "threads,agents,prompts,models,tools,effects,subagents,events,configmaps", "-o", "yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(c.in(objects)).To(BeEmpty(), "objects of the cluster")
	data, err := os.ReadFile(logFile.Name())
	Expect(err).NotTo(HaveOccurred())
	Expect(c.in(string(data))).To(BeEmpty(), "the manager's log")
	expectNotStored(c)
}
