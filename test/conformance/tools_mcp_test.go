package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// anyObject is the schema of any object.
var anyObject = json.RawMessage(`{"type":"object"}`)

// mcpServer serves tools on loopback until the spec ends; wrap may look at requests first.
func mcpServer(s *mcp.Server, wrap ...func(http.Handler) http.Handler) *httptest.Server {
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	for _, w := range wrap {
		h = w(h)
	}
	server := httptest.NewServer(h)
	DeferCleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func newMCP() *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
}

func says(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// pong is a tool that does nothing.
func pong(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return says("pong"), nil
}

// mcpTool is a Tool that stands for a server.
func mcpTool(ns, name, url string) *skeinv1.Tool {
	return &skeinv1.Tool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.ToolSpec{MCP: &skeinv1.MCPServer{URL: url}}}
}

// listed waits until the manager knows what an MCP server lists, by a call of one of its tools: an execution waits for that
// for five seconds at most, and goes on without the tools.
func listed(ctx context.Context, t *harness.Thread, tool string, args any) {
	GinkgoHelper()
	Eventually(ctx, func() error { _, err := golang(t).InvokeTool(ctx, tool, args); return err }).Should(Succeed())
}

var _ = Describe("MCP servers", Label("TOL-02"), func() {
	It("have their tools called by models, with the Secrets' values, and their arguments checked", func(ctx SpecContext) {
		ns := namespace(ctx)
		s := newMCP()
		s.AddTool(&mcp.Tool{Name: "add", Description: "adds", InputSchema: json.RawMessage(`{"type":"object","required":["a","b"],"properties":{"a":{"type":"number"},"b":{"type":"number"}}}`)},
			func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ A, B float64 }
				err := json.Unmarshal(req.Params.Arguments, &in)
				out, _ := json.Marshal(in.A + in.B)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(out)}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("png")}}}, err
			})
		server := mcpServer(s, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer token-of-the-server" {
					http.Error(w, "who are you?", http.StatusUnauthorized)
					return
				}
				h.ServeHTTP(w, r)
			})
		})
		create(ctx, secretOf(ns, "mcp", nil, map[string]string{"token": "token-of-the-server\n"}))
		tool := mcpTool(ns, "calc", server.URL)
		tool.Spec.MCP.Auth = &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{SecretKeyRef: refOf("mcp", "token")}}
		create(ctx, tool)
		t := converse(ctx, ns, []string{"calc"}, []skeinv1.ScriptStep{
			harness.Calls("calc_add", map[string]any{"a": "one"}), harness.Calls("calc_add", map[string]any{"a": 1, "b": 2}), harness.Answer("done"),
		})
		listed(ctx, t, "calc_add", map[string]int{"a": 1, "b": 1})
		ms := say(ctx, t, 1, "go")
		Expect(last(ms)).To(Equal("done"))
		Expect(ms[2].ToolStatus).To(Equal("error"))
		Expect(*ms[2].Content).To(And(ContainSubstring("/a"), ContainSubstring("number"), ContainSubstring("'b'")))
		content, status := result(ms, "calc_add")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(HavePrefix("3\n[image: /attachments/"))
		Expect(ms[4].Attachments).To(HaveLen(1))
		Expect(t.ReadFile(ctx, ms[4].Attachments[0].Path)).To(Equal([]byte("png")))

		By("from outside, and by the plugin")
		Expect(golang(t).InvokeTool(ctx, "calc_add", map[string]int{"a": 2, "b": 2})).To(And(HaveField("Status", runtimev1.ToolSuccess), HaveField("Result", HavePrefix("4\n"))))
		_, err := golang(t).InvokeTool(ctx, "calc_ad", nil)
		Expect(err).To(MatchError(ContainSubstring("did you mean calc_add?")))
		Eventually(ctx, func() (string, error) { return cluster.Kubectl(ctx, "-n", ns, "get", "events", "-o", "yaml") }).Should(ContainSubstring("ServerReachable"))
	}, SpecTimeout(2*time.Minute))

	It("that are gone cost their own tools and nothing else, and come back", func(ctx SpecContext) {
		ns := namespace(ctx)
		s := newMCP()
		s.AddTool(&mcp.Tool{Name: "hi", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return says("hello"), nil })
		var gone atomic.Bool
		server := mcpServer(s, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if gone.Load() {
					panic(http.ErrAbortHandler)
				}
				h.ServeHTTP(w, r)
			})
		})
		create(ctx, mcpTool(ns, "there", server.URL), mcpTool(ns, "never", "http://127.0.0.1:1/mcp"))
		t := converse(ctx, ns, []string{"there", "never", "builtin:kv"}, []skeinv1.ScriptStep{
			harness.On("there", harness.Calls("there_hi", map[string]any{})), harness.On("never", harness.Calls("never_hi", map[string]any{})),
			harness.After("there_hi", harness.Answer("it said {{ .Last.Content }}")), harness.After("never_hi", harness.Answer("it said {{ .Last.Content }}")),
		})
		listed(ctx, t, "there_hi", nil)
		Expect(last(say(ctx, t, 1, "there"))).To(Equal("it said hello"))
		Expect(last(say(ctx, t, 2, "never"))).To(And(ContainSubstring("no tool"), ContainSubstring("MCP server never"), ContainSubstring("127.0.0.1")))
		gone.Store(true)
		server.CloseClientConnections()
		Expect(last(say(ctx, t, 3, "there"))).To(And(ContainSubstring("MCP server of the tool there"), ContainSubstring("failed")))
		Expect(t.Runs(ctx)).To(HaveEach(HaveField("Status", "succeeded")), "none was ended by it")
		gone.Store(false)
		Eventually(ctx, func() (*runtimev1.ToolResult, error) { return golang(t).InvokeTool(ctx, "there_hi", nil) }).Should(HaveField("Result", "hello"))
		Eventually(ctx, func() (string, error) { return cluster.Kubectl(ctx, "-n", ns, "get", "events", "-o", "yaml") }).Should(ContainSubstring("ServerUnreachable"))
	}, SpecTimeout(3*time.Minute))

	It("tell of changes of their list, and how far a call is; a stop reaches them", Label("RUN-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		arrived, gone := make(chan struct{}, 8), make(chan struct{}, 8)
		s := newMCP()
		s.AddTool(&mcp.Tool{Name: "work", InputSchema: anyObject}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 3, Message: "one of three"})
			arrived <- struct{}{}
			<-ctx.Done()
			gone <- struct{}{}
			return nil, err
		})
		s.AddTool(&mcp.Tool{Name: "ping", InputSchema: anyObject}, pong)
		server := mcpServer(s)
		create(ctx, mcpTool(ns, "m", server.URL))
		t := converse(ctx, ns, []string{"m"}, []skeinv1.ScriptStep{harness.On("go", harness.Calls("m_work", map[string]any{}))})
		listed(ctx, t, "m_ping", nil)
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, arrived).Should(Receive())
		Eventually(ctx, func() ([]runtimev1.Event, error) { return t.Log(ctx) }).Should(ContainElement(And(
			HaveField("Type", runtimev1.EventToolProgress), HaveField("Data", WithTransform(func(d json.RawMessage) string { return string(d) },
				And(ContainSubstring("one of three"), ContainSubstring("m_work"), ContainSubstring(`"total":3`)))))))
		_, err := golang(t).Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, gone).Should(Receive(), "the server was told")
		settled(ctx, t, 1)
		_, err = golang(t).InvokeTool(ctx, "m_late", nil)
		Expect(err).To(HaveOccurred())
		s.AddTool(&mcp.Tool{Name: "late", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return says("late"), nil })
		Eventually(ctx, func() (*runtimev1.ToolResult, error) { return golang(t).InvokeTool(ctx, "m_late", nil) }).Should(HaveField("Result", "late"))
	}, SpecTimeout(2*time.Minute))

	It("take the place of no other tool, and say so where it shows", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		s := newMCP()
		for _, name := range []string{"get_value", "other"} {
			s.AddTool(&mcp.Tool{Name: name, InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return says("from the server"), nil
			})
		}
		server := mcpServer(s)
		plain := mcpTool(ns, "plain", server.URL)
		plain.Spec.MCP.Prefix = ptr.To("")
		create(ctx, plain)
		t := converse(ctx, ns, []string{"plain", "builtin:kv"}, []skeinv1.ScriptStep{harness.Echo()})
		Expect(t.SetValue(ctx, "k", `"mine"`)).To(Succeed())
		listed(ctx, t, "other", nil)
		Expect(golang(t).InvokeTool(ctx, "get_value", map[string]string{"key": "k"})).To(HaveField("Result", ContainSubstring("mine")))
		Expect(golang(t).InvokeTool(ctx, "other", nil)).To(HaveField("Result", "from the server"))

		second := mcpTool(ns, "second", server.URL)
		second.Spec.MCP.Prefix = ptr.To("")
		p := harness.Prompt(ns, "both", "model", "plain", "second")
		create(ctx, second, p)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(p), p)).To(Succeed())
			g.Expect(p.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("prefix")))))
		}).Should(Succeed())
		before := second.DeepCopy()
		second.Spec.MCP.Prefix = ptr.To("second_")
		Expect(cluster.Client.Patch(ctx, second, client.MergeFrom(before))).To(Succeed()) // its status may be written meanwhile
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(p), p)).To(Succeed())
			g.Expect(p.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("let no secret out", Label("ENV-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		c := newCanaries("header", "auth")
		s := newMCP()
		s.AddTool(&mcp.Tool{Name: "leak", InputSchema: anyObject}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			all, _ := json.Marshal(req.Extra.Header)
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Message: req.Extra.Header.Get("X-Key")})
			return says("headers " + string(all) + " key " + req.Extra.Header.Get("X-Key")), nil
		})
		server := mcpServer(s)
		create(ctx, secretOf(ns, "s", nil, map[string]string{"header": c["header"], "auth": c["auth"]}))
		tool := mcpTool(ns, "m", server.URL)
		tool.Spec.MCP.Headers = []skeinv1.ToolHeader{{Name: "X-Key", SecretKeyRef: ptr.To(refOf("s", "header"))}}
		tool.Spec.MCP.Auth = &skeinv1.ToolAuth{Header: &skeinv1.ToolAuthHeader{Name: "X-Auth", SecretKeyRef: refOf("s", "auth")}}
		create(ctx, tool)
		t := converse(ctx, ns, []string{"m"}, []skeinv1.ScriptStep{harness.On("go", harness.Calls("m_leak", map[string]any{})), harness.After("m_leak", harness.Answer("{{ .Last.Content }}"))})
		listed(ctx, t, "m_leak", nil)
		Expect(last(say(ctx, t, 1, "go"))).To(MatchRegexp(`\[redacted\](.|\n)*\[redacted\]`))
		expectNowhere(ctx, c, ns, everyAnswer(ctx, t))
	}, SpecTimeout(2*time.Minute))
})
