package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/test/harness"
)

// everything starts the reference server of the protocol, which others have written, in one of its modes, and gives its
// base URL. It ends with the spec.
func everything(ctx context.Context, mode string) string {
	GinkgoHelper()
	install := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "npm.sh"), "install", "mcp-everything")
	install.Stderr = GinkgoWriter
	out, err := install.Output()
	Expect(err).NotTo(HaveOccurred())
	port, err := scratch.Port()
	Expect(err).NotTo(HaveOccurred())
	server := exec.Command("node", filepath.Join(strings.TrimSpace(string(out)), "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), mode)
	server.Env = append(os.Environ(), fmt.Sprint("PORT=", port))
	server.Stdout, server.Stderr = GinkgoWriter, GinkgoWriter
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(server.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	url := fmt.Sprint("http://127.0.0.1:", port)
	Eventually(ctx, func() error {
		resp, err := http.Get(url) //nolint:noctx // bounded by the spec
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}).Should(Succeed(), "the server listens")
	return url
}

var _ = Describe("The protocol's reference server", Label("TOL-02"), func() {
	DescribeTable("has its tools called", func(ctx SpecContext, mode, path string, transport skeinv1.MCPTransport) {
		ns := namespace(ctx)
		tool := mcpTool(ns, "every", everything(ctx, mode)+path)
		tool.Spec.MCP.Transport = transport
		create(ctx, tool)
		t := converse(ctx, ns, []string{"every"}, []skeinv1.ScriptStep{
			{ToolCalls: []skeinv1.ScriptToolCall{
				{Name: "every_echo", Arguments: harness.Raw(map[string]any{"message": "hello"})},
				{Name: "every_get-sum", Arguments: harness.Raw(map[string]any{"a": 2, "b": 40})},
				{Name: "every_get-sum", Arguments: harness.Raw(map[string]any{"a": "two"})},
				{Name: "every_get-tiny-image", Arguments: harness.Raw(map[string]any{})},
				{Name: "every_get-structured-content", Arguments: harness.Raw(map[string]any{"location": "Chicago"})},
				{Name: "every_trigger-long-running-operation", Arguments: harness.Raw(map[string]any{"duration": 1, "steps": 10})},
			}},
			harness.Answer("done"),
		})
		listed(ctx, t, "every_echo", map[string]string{"message": "hello"})
		ms := say(ctx, t, 1, "go")
		Expect(last(ms)).To(Equal("done"))
		var results []runtimev1.Message
		for _, m := range ms {
			if m.Role == runtimev1.RoleTool {
				results = append(results, m)
			}
		}
		content := func(m OmegaMatcher) OmegaMatcher { return HaveField("Content", HaveValue(m)) }
		success, failure := HaveField("ToolStatus", "success"), HaveField("ToolStatus", "error")
		Expect(results).To(HaveExactElements(
			And(success, content(ContainSubstring("hello"))),
			And(success, content(ContainSubstring("42"))),
			And(failure, content(And(ContainSubstring("/a"), ContainSubstring("number")))),
			And(success, HaveField("Attachments", HaveExactElements(HaveField("MimeType", "image/png")))),
			And(success, content(MatchJSON(`{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}`))),
			And(success, content(ContainSubstring("completed"))),
		))
		Eventually(ctx, func() ([]runtimev1.Event, error) { return t.Log(ctx) }).Should(ContainElement(And(HaveField("Type", runtimev1.EventToolProgress),
			HaveField("Data", WithTransform(func(d json.RawMessage) string { return string(d) }, ContainSubstring(`"total":10`))))))
	},
		Entry("by streamable HTTP", "streamableHttp", "/mcp", skeinv1.MCPStreamable, SpecTimeout(4*time.Minute)),
		Entry("by server-sent events", "sse", "/sse", skeinv1.MCPSSE, SpecTimeout(4*time.Minute)),
	)
})
