package mcptool_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/internal/tool/tooltest"
)

var _ = Describe("The memory of answers of MCP servers", Label("K8S-12", "TOL-02"), func() {
	const size = 512 << 10
	var budget *membudget.Budget
	var servers *mcptool.Servers
	var host *tool.Host
	large := func() *mcp.Server {
		s := newServer("small")
		s.AddTool(&mcp.Tool{Name: "large", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(strings.Repeat("x", size)), nil
		})
		s.AddTool(&mcp.Tool{Name: "decoded", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{StructuredContent: map[string]any{"a": make([]struct{}, 100_000)}}, nil
		})
		return s
	}
	BeforeEach(func(ctx SpecContext) {
		var closed func() error
		var err error
		host, closed, err = tooltest.NewHost(ctx, GinkgoT().TempDir(), nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(closed)
		private, err := outbound.ParseHosts([]string{"127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		network := outbound.New(outbound.Policy{Private: private})
		DeferCleanup(network.Close)
		budget = membudget.New(16<<20, time.Millisecond)
		servers = mcptool.New(mcptool.Options{Network: network, Memory: budget, Log: GinkgoLogr})
		DeferCleanup(servers.Close)
	})

	DescribeTable("is drawn from the account of the call, which fails without it", func(ctx SpecContext, transport skeinv1.MCPTransport, handler func(*mcp.Server) http.Handler) {
		s := large()
		c := &mcptool.Server{Namespace: "n", Name: "s", Version: "1", URL: serve(handler(s)).URL, Transport: transport}
		list, err := servers.Tools(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		call := func(name string) (tool.Result, int64) {
			work, done := budget.Begin(ctx, "n")
			defer done()
			for _, r := range list {
				if r.Name == name {
					res := servers.Tool(c, r, host).Call(work, tool.Call{ID: "call_1", Name: name, Arguments: json.RawMessage(`{}`)})
					return res, membudget.From(work).Drawn()
				}
			}
			Fail("no tool " + name)
			return tool.Result{}, 0
		}
		for range 20 { // far more in all than there is memory for
			res, held := call("large")
			Expect(res).To(Equal(tool.Success(strings.Repeat("x", size))))
			if transport == skeinv1.MCPStreamable {
				Expect(held).To(BeNumerically(">=", 2*size))
			}
		}
		res, _ := call("decoded")
		Expect(res.Status).To(Equal(tool.StatusError))
		if transport == skeinv1.MCPStreamable {
			Expect(res.Content).To(And(ContainSubstring("it was called, and there is no memory for its answer"), ContainSubstring("MiB")))
			Expect(budget.Used()).To(BeNumerically("<", 1<<10), "no more than the last event of the stream of the session")
		}
		res, _ = call("small")
		Expect(res.Status).To(Equal(tool.StatusSuccess), res.Content)
	},
		Entry("with the answer as JSON", skeinv1.MCPStreamable, func(s *mcp.Server) http.Handler {
			return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: true})
		}),
		Entry("with the answer as events", skeinv1.MCPStreamable, streamable),
		Entry("with the older transport", skeinv1.MCPSSE, func(s *mcp.Server) http.Handler {
			return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
		}),
	)
})
