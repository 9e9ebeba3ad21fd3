package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/internal/tool/tooltest"
)

func TestMCPTool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "MCP tools")
}

// object is the schema of any object.
var object = json.RawMessage(`{"type":"object"}`)

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// remote is a server whose handler a test can remove and restore.
type remote struct {
	*httptest.Server
	mu       sync.Mutex
	handler  http.Handler
	headers  http.Header // of the last request
	requests atomic.Int64
}

func serve(h http.Handler) *remote {
	r := &remote{handler: h}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		r.mu.Lock()
		now := r.handler
		r.headers = req.Header.Clone()
		r.mu.Unlock()
		if now == nil {
			panic(http.ErrAbortHandler)
		}
		now.ServeHTTP(w, req)
	}))
	DeferCleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func (r *remote) is(h http.Handler) {
	r.mu.Lock()
	r.handler = h
	r.mu.Unlock()
	r.CloseClientConnections()
}

func streamable(s *mcp.Server) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

func newServer(tools ...string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for _, name := range tools {
		s.AddTool(&mcp.Tool{Name: name, Description: "does " + name, InputSchema: object}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			key, _ := req.Params.Meta[mcptool.IdempotencyMeta].(string)
			return text(req.Params.Name + " " + string(req.Params.Arguments) + " " + key), nil
		})
	}
	return s
}

var _ = Describe("MCP servers", Label("TOL-02"), func() {
	var (
		host    *tool.Host
		servers *mcptool.Servers
		network *outbound.Network
		watched chan error
	)
	ctx := context.Background()
	BeforeEach(func() {
		var closed func() error
		var err error
		host, closed, err = tooltest.NewHost(ctx, GinkgoT().TempDir(), nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(closed)
		private, err := outbound.ParseHosts([]string{"127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		network = outbound.New(outbound.Policy{Private: private})
		DeferCleanup(network.Close)
		watched = make(chan error, 64)
		servers = mcptool.New(mcptool.Options{Network: network, Log: GinkgoLogr, Watch: func(_ *mcptool.Server, err error) { watched <- err }})
		DeferCleanup(servers.Close)
	})
	config := func(r *remote, change ...func(*mcptool.Server)) *mcptool.Server {
		c := &mcptool.Server{Namespace: "n", Name: "s", Version: "1", URL: r.URL, Transport: skeinv1.MCPStreamable, Prefix: "s_"}
		for _, f := range change {
			f(c)
		}
		return c
	}
	names := func(c *mcptool.Server) (out []string) {
		list, _ := servers.Tools(ctx, c)
		for _, r := range list {
			out = append(out, r.Name)
		}
		return out
	}
	call := func(ctx context.Context, c *mcptool.Server, name, args string) tool.Result {
		GinkgoHelper()
		list, _ := servers.Tools(ctx, c)
		for _, r := range list {
			if r.Name == name {
				return servers.Tool(c, r, host).Call(ctx, tool.Call{ID: "call_1", Name: name, Arguments: json.RawMessage(args)})
			}
		}
		Fail("no tool " + name)
		return tool.Result{}
	}

	It("have their tools listed and called in one session, with the Tool's headers and the idempotency key", func() {
		r := serve(streamable(newServer("a", "b-c.d/e")))
		c := config(r, func(s *mcptool.Server) { s.Headers = http.Header{"Authorization": {"Bearer t"}} })
		Expect(servers.Tools(ctx, c)).To(HaveExactElements(
			And(HaveField("Name", "s_a"), HaveField("Remote", "a"), HaveField("Description", "does a"), HaveField("Parameters", MatchJSON(object))),
			HaveField("Name", "s_b-c_d_e")))
		Expect(call(ctx, c, "s_b-c_d_e", `{"x":1}`)).To(Equal(tool.Success(`b-c.d/e {"x":1} ` + tool.IdempotencyKey(host.Thread.ID, "call_1"))))
		r.mu.Lock()
		Expect(r.headers.Get("Authorization")).To(Equal("Bearer t"))
		r.mu.Unlock()
		before := r.requests.Load()
		names(c)
		Expect(r.requests.Load()).To(Equal(before), "the list is remembered")
		Expect(watched).To(Receive(BeNil()))
	})

	It("speak the older transport, too", func() {
		s := newServer("a")
		r := serve(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
		c := config(r, func(s *mcptool.Server) { s.Transport = skeinv1.MCPSSE })
		Expect(call(ctx, c, "s_a", `{}`).Content).To(HavePrefix("a {}"))
		Expect(call(ctx, c, "s_a", `{}`).Content).To(HavePrefix("a {}"))
	})

	It("offer the chosen tools, without duplicate names", func() {
		r := serve(streamable(newServer("a", "b", "x.y", "x_y")))
		Expect(names(config(r, func(s *mcptool.Server) { s.Tools = []string{"b", "none"}; s.Prefix = "" }))).To(Equal([]string{"b"}))
		Expect(names(config(r, func(s *mcptool.Server) { s.Version = "2" }))).To(HaveExactElements("s_a", "s_b", "s_x_y"))
		Expect(mcptool.CallName("p_", strings.Repeat("n", 100))).To(And(HaveLen(64), HavePrefix("p_nnn"), Not(Equal(mcptool.CallName("p_", strings.Repeat("n", 101))))))
	})

	It("report changes of their list", func() {
		s := newServer("a")
		c := config(serve(streamable(s)))
		Expect(names(c)).To(Equal([]string{"s_a"}))
		s.AddTool(&mcp.Tool{Name: "b", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("b"), nil })
		Eventually(func() []string { return names(c) }).Should(Equal([]string{"s_a", "s_b"}))
		s.RemoveTools("a")
		Eventually(func() []string { return names(c) }).Should(Equal([]string{"s_b"}))
	})

	It("fail only their own tools while they are down, and work again when they are back", func() {
		r := serve(streamable(newServer("a")))
		c := config(r)
		Expect(names(c)).To(Equal([]string{"s_a"}))
		r.is(nil)
		Eventually(func() string { return call(ctx, c, "s_a", `{}`).Content }).Should(And(ContainSubstring("MCP server of the tool s"), ContainSubstring("127.0.0.1"), Not(ContainSubstring("http://"))))
		Expect(call(ctx, c, "s_a", `{}`).Status).To(Equal(tool.StatusError))
		r.is(streamable(newServer("a", "new"))) // the new server does not know the session
		Eventually(func() tool.Status { return call(ctx, c, "s_a", `{}`).Status }).Should(Equal(tool.StatusSuccess))
		Eventually(func() []string { return names(c) }).Should(Equal([]string{"s_a", "s_new"}))
	})

	It("get the call in a new session when the old one has ended, with the same idempotency key", func() {
		c := config(serve(streamable(newServer("a"))))
		Expect(names(c)).To(Equal([]string{"s_a"}))
		Expect(servers.Break(ctx, c)).To(Succeed())
		Expect(call(ctx, c, "s_a", `{}`)).To(Equal(tool.Success(`a {} ` + tool.IdempotencyKey(host.Thread.ID, "call_1"))))
	})

	It("never get a call twice that they may have received, and get the next one in a new session", func() {
		var calls atomic.Int64
		s := newServer("a")
		inner := streamable(s)
		c := config(serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil && strings.Contains(string(body), "tools/call") && calls.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			inner.ServeHTTP(w, r)
		})))
		Expect(call(ctx, c, "s_a", `{}`)).To(And(HaveField("Status", tool.StatusError), HaveField("Content", HaveSuffix("it may have done what it was asked to"))))
		Expect(calls.Load()).To(Equal(int64(1)))
		Expect(call(ctx, c, "s_a", `{}`).Status).To(Equal(tool.StatusSuccess))
	})

	It("have one session for each version of their Tool, so that calls of the earlier version can finish", func() {
		arrived, goOn := make(chan struct{}, 1), make(chan struct{})
		var sessions atomic.Int64
		s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{InitializedHandler: func(context.Context, *mcp.InitializedRequest) { sessions.Add(1) }})
		s.AddTool(&mcp.Tool{Name: "a", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("a"), nil })
		s.AddTool(&mcp.Tool{Name: "slow", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			arrived <- struct{}{}
			<-goOn
			return text("done"), nil
		})
		r := serve(streamable(s))
		before, after := config(r), config(r, func(s *mcptool.Server) { s.Version = "2" })
		Expect(names(before)).To(Equal([]string{"s_a", "s_slow"}))
		done := make(chan tool.Result, 1)
		go func() {
			defer GinkgoRecover()
			done <- call(ctx, before, "s_slow", `{}`)
		}()
		Eventually(arrived).Should(Receive())
		Expect(call(ctx, after, "s_a", `{}`).Status).To(Equal(tool.StatusSuccess))
		Expect(call(ctx, before, "s_a", `{}`).Status).To(Equal(tool.StatusSuccess))
		close(goOn)
		Eventually(done).Should(Receive(Equal(tool.Success("done"))))
		Expect(sessions.Load()).To(Equal(int64(2)))
	})

	It("are watched by the current version of their Tool, also when a run uses an earlier version that was forgotten", func() {
		type outcome struct {
			version string
			reached bool
		}
		told := make(chan outcome, 64)
		servers := mcptool.New(mcptool.Options{Network: network, Log: GinkgoLogr, Watch: func(s *mcptool.Server, err error) { told <- outcome{s.Version, err == nil} }})
		DeferCleanup(servers.Close)
		wrong, right := serve(streamable(newServer("a"))), serve(streamable(newServer("a")))
		before := config(wrong, func(s *mcptool.Server) { s.Generation = 1 })
		after := config(right, func(s *mcptool.Server) { s.Version, s.Generation = "2", 2 })
		Expect(servers.Ask(before)).To(Succeed())
		Expect(told).To(Receive(Equal(outcome{"1", true})))
		Expect(servers.Ask(after)).To(Succeed())
		Expect(told).To(Receive(Equal(outcome{"2", true})))
		Expect(servers.Forget(before)).To(Succeed())
		wrong.is(nil)
		Expect(servers.Ask(before)).NotTo(Succeed())
		Expect(told).NotTo(Receive(), "the Tool's server is well")
		right.is(nil)
		Expect(servers.Ask(after)).NotTo(Succeed())
		Expect(told).To(Receive(Equal(outcome{"2", false})))
	})

	It("are remembered for a bounded number of Tools", func() {
		for i := range mcptool.MaxNewest + 10 {
			Expect(servers.Forget(&mcptool.Server{Namespace: "n", Name: fmt.Sprint(i), Version: "1"})).To(Succeed())
		}
		Expect(servers.Remembered()).To(Equal(mcptool.MaxNewest))
	})

	It("are reported as unreachable, with a reason without the URL", func() {
		r := serve(nil)
		list, err := servers.Tools(ctx, config(r, func(s *mcptool.Server) { s.URL += "/?token=s3cr3t" }))
		Expect(list).To(BeEmpty())
		Expect(err).To(MatchError(And(ContainSubstring("127.0.0.1"), Not(ContainSubstring("s3cr3t")))))
		Eventually(watched).Should(Receive(HaveOccurred()))
		_, err = servers.Tools(ctx, config(r, func(s *mcptool.Server) { s.Name, s.URL = "inside", strings.Replace(r.URL, "127.0.0.1", "localhost", 1) }))
		Expect(err).To(MatchError(ContainSubstring("--tool-private-hosts")))
	})

	It("have calls cancelled with the run, and are notified", func() {
		arrived, gone := make(chan struct{}, 1), make(chan struct{}, 1)
		s := newServer()
		s.AddTool(&mcp.Tool{Name: "wait", InputSchema: object}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			arrived <- struct{}{}
			<-ctx.Done()
			gone <- struct{}{}
			return nil, ctx.Err()
		})
		c := config(serve(streamable(s)))
		given, giveUp := context.WithCancelCause(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer GinkgoRecover()
			call(given, c, "s_wait", `{}`)
		}()
		Eventually(arrived).Should(Receive())
		giveUp(errors.New("stopped"))
		Eventually(done).Should(BeClosed())
		Eventually(gone).Should(Receive(), "the server was told")
		c.Timeout = 50 * time.Millisecond
		res := call(ctx, c, "s_wait", `{}`)
		Expect(res.Status).To(Equal(tool.StatusError))
		Expect(res.Content).To(ContainSubstring("50ms"))
	})

	It("report the progress of a call", func() {
		seen := make(chan tool.Progress, 64)
		host.Progress = func(_ context.Context, p tool.Progress) { seen <- p }
		goOn := make(chan struct{})
		s := newServer()
		s.AddTool(&mcp.Tool{Name: "work", InputSchema: object}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 4, Message: "one\x00\x1b"})
			<-goOn
			return text("done"), err
		})
		c := config(serve(streamable(s)))
		done := make(chan tool.Result, 1)
		go func() {
			defer GinkgoRecover()
			done <- call(ctx, c, "s_work", `{}`)
		}()
		Eventually(seen).Should(Receive(Equal(tool.Progress{ToolCallID: "call_1", Name: "s_work", Progress: 1, Total: 4, Message: "one"})))
		close(goOn)
		Eventually(done).Should(Receive(Equal(tool.Success("done"))))
	})

	It("return texts, structured content, images and resources", func() {
		s := newServer()
		s.AddTool(&mcp.Tool{Name: "all", InputSchema: object, OutputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)},
			func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if string(req.Params.Arguments) != `{}` {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "x"}}, StructuredContent: json.RawMessage(req.Params.Arguments)}, nil
				}
				return &mcp.CallToolResult{Content: []mcp.Content{
					&mcp.TextContent{Text: "hello"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("png")},
					&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://1", Text: "inside"}}, &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://2", MIMEType: "application/pdf", Blob: []byte("pdf!")}},
					&mcp.ResourceLink{URI: "x://3", Name: "link"}, &mcp.TextContent{Text: `{"n": 1}`},
				}, StructuredContent: json.RawMessage(`{"n":1}`)}, nil
			})
		s.AddTool(&mcp.Tool{Name: "fails", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "the disk is full"}}}, nil
		})
		s.AddTool(&mcp.Tool{Name: "refuses", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New("not today")
		})
		c := config(serve(streamable(s)))
		res := call(ctx, c, "s_all", `{}`)
		Expect(res.Status).To(Equal(tool.StatusSuccess))
		Expect(res.Content).To(Equal("hello\n[image: /attachments/call_1-1.png, image/png, 3 bytes]\n[resource x://1]\ninside\n[resource x://2: /attachments/call_1-2.pdf, application/pdf, 4 bytes]\n[resource link: x://3 ]\n{\"n\": 1}"))
		Expect(res.Attachments).To(HaveLen(2))
		Expect(call(ctx, c, "s_all", `{"n":2}`).Content).To(Equal("x\n{\"n\":2}"))
		Expect(call(ctx, c, "s_all", `{"n":"two"}`)).To(And(HaveField("Status", tool.StatusError), HaveField("Content", ContainSubstring("does not fit the schema"))))
		Expect(call(ctx, c, "s_fails", `{}`)).To(Equal(tool.Failure("the disk is full")))
		Expect(call(ctx, c, "s_refuses", `{}`)).To(And(HaveField("Status", tool.StatusError), HaveField("Content", ContainSubstring("not today"))))
	})

	It("have secrets redacted from their output before it is cut", func() {
		const secret = "0123456789abcdef"
		before := strings.Repeat("x", 4<<10-8)
		s := newServer()
		s.AddTool(&mcp.Tool{Name: "a", Description: before + secret, InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32000, Message: before + secret}
		})
		servers := mcptool.New(mcptool.Options{Network: network, Redact: func(_, text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }})
		DeferCleanup(servers.Close)
		c := config(serve(streamable(s)))
		list, err := servers.Tools(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveExactElements(HaveField("Description", And(ContainSubstring("[redac"), Not(ContainSubstring("01234567"))))))
		res := servers.Tool(c, list[0], host).Call(ctx, tool.Call{ID: "call_1", Name: "s_a", Arguments: json.RawMessage(`{}`)})
		Expect(res.Status).To(Equal(tool.StatusError))
		Expect(res.Content).To(And(ContainSubstring("[redac"), Not(ContainSubstring("01234567"))))
	})

	It("are not trusted: their lists are bounded, and unknown expressions are left out", func() {
		s := newServer()
		nothing := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text(""), nil }
		s.AddTool(&mcp.Tool{Name: "long", Description: strings.Repeat("d", 1<<20) + "\x1b", InputSchema: object}, nothing)
		s.AddTool(&mcp.Tool{Name: "ahead", InputSchema: json.RawMessage(`{"type":"object","properties":{"p":{"type":"string","pattern":"^(?!a)b"}},"required":["p"]}`)}, nothing)
		s.AddTool(&mcp.Tool{Name: "outside", InputSchema: json.RawMessage(`{"type":"object","properties":{"p":{"$ref":"file:///etc/passwd"}}}`)}, nothing)
		s.AddTool(&mcp.Tool{Name: "huge", InputSchema: json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 1<<17) + `"}`)}, nothing)
		c := config(serve(streamable(s)))
		list, err := servers.Tools(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(ConsistOf(
			And(HaveField("Name", "s_long"), HaveField("Description", WithTransform(func(d string) int { return len(d) }, BeNumerically("<", 5000)))),
			And(HaveField("Name", "s_ahead"), HaveField("Parameters", MatchJSON(`{"type":"object","properties":{"p":{"type":"string"}},"required":["p"]}`)))))
	})
})
