package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// shouting is code that shouts by each kind of tool.
const shouting = `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state, { tool, text }) => {
  if (text === 'later') { state.queueTool(tool, { text }); return 'queued'; }
  const r = await state.invokeTool(tool, { text });
  return { status: 'success', result: r.status + ':' + (r.status === 'success' ? r.result : r.error) };
} });`

var textProperty = map[string]any{"text": map[string]any{"type": "string", "minLength": 1}}

var _ = Describe("Tools of every kind", Label("TOL-01", "TOL-02"), func() {
	const loud = "HELLO"
	DescribeTable("are invoked and queued from outside, by the plugin and by code", func(ctx SpecContext, name string, declare func(ns string) *skeinv1.Tool) {
		ns := namespace(ctx)
		caller := harness.CodeTool(ns, "caller", shouting, map[string]any{"tool": stringProperty, "text": stringProperty}, "tool", "text")
		create(ctx, declare(ns), caller)
		t := converse(ctx, ns, []string{"shout", "caller"}, []skeinv1.ScriptStep{harness.After(name, harness.Answer("it said {{ .Last.Content }}"))})
		hello := map[string]string{"text": "hello"}

		By("invoking it from outside")
		listed(ctx, t, name, hello)
		Expect(golang(t).InvokeTool(ctx, name, hello)).To(And(HaveField("Status", runtimev1.ToolSuccess), HaveField("Result", loud), HaveField("Error", "")))
		Expect(golang(t).InvokeTool(ctx, name, map[string]string{"text": ""})).To(And(HaveField("Status", runtimev1.ToolError), HaveField("Error", ContainSubstring("/text")), HaveField("Result", "")))
		Expect(golang(t).InvokeTool(ctx, name, map[string]string{"text": "fail"})).To(And(HaveField("Status", runtimev1.ToolError), HaveField("Error", ContainSubstring("too loud"))))

		By("invoking it by the plugin")
		Expect(cluster.Plugin(ctx, "-n", ns, "tool", "thread", name, "--args", `{"text":"hello"}`)).To(Equal(loud + "\n"))

		By("invoking it by code")
		Expect(golang(t).InvokeTool(ctx, "caller", map[string]string{"tool": name, "text": "hello"})).To(HaveField("Result", "success:"+loud))
		Expect(golang(t).InvokeTool(ctx, "caller", map[string]string{"tool": name, "text": "fail"})).To(HaveField("Result", And(HavePrefix("error:"), ContainSubstring("too loud"))))
		Expect(t.Messages(ctx)).To(BeEmpty())

		By("queueing it from outside")
		Expect(golang(t).QueueTool(ctx, name, hello)).To(Succeed())
		Expect(last(settled(ctx, t, 1))).To(Equal("it said " + loud))

		By("queueing it by the plugin and by code")
		Expect(cluster.Plugin(ctx, "-n", ns, "tool", "thread", name, "--args", `{"text":"hello"}`, "--queue")).To(ContainSubstring("queued"))
		settled(ctx, t, 2)
		Expect(golang(t).InvokeTool(ctx, "caller", map[string]string{"tool": name, "text": "later"})).To(HaveField("Result", "queued"))
		Expect(last(settled(ctx, t, 3))).To(Equal("it said LATER"))
	},
		Entry("code", "shout", func(ns string) *skeinv1.Tool {
			return harness.CodeTool(ns, "shout", `export default { execute: async (_, { text }) => text === 'fail' ? { status: 'error', error: 'too loud' } : { status: 'success', result: text.toUpperCase() } };`, textProperty, "text")
		}, SpecTimeout(3*time.Minute)),
		Entry("an HTTP request", "shout", func(ns string) *skeinv1.Tool {
			server := toolServer(func(w http.ResponseWriter, r *http.Request, _ string) {
				text := r.URL.Query().Get("text")
				if text == "fail" {
					http.Error(w, "too loud", http.StatusUnprocessableEntity)
					return
				}
				_, _ = io.WriteString(w, strings.ToUpper(text))
			})
			return harness.HTTPTool(ns, "shout", skeinv1.HTTPTool{URL: server.URL + "/?text={{ arguments.text }}"}, textProperty, "text")
		}, SpecTimeout(3*time.Minute)),
		Entry("a tool of an MCP server", "shout_now", func(ns string) *skeinv1.Tool {
			s := newMCP()
			s.AddTool(&mcp.Tool{Name: "now", InputSchema: map[string]any{"type": "object", "required": []string{"text"}, "properties": textProperty}}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ Text string }
				if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
					return nil, err
				}
				if in.Text == "fail" {
					return nil, errors.New("too loud")
				}
				return says(strings.ToUpper(in.Text)), nil
			})
			return mcpTool(ns, "shout", mcpServer(s).URL)
		}, SpecTimeout(3*time.Minute)),
	)

	It("may be prompts that the code of another tool calls, and waits for", Label("AGT-05", "ENV-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		tone := harness.CodeTool(ns, "tone", `export default { execute: (state) => state.env('TONE') };`, nil)
		caller := harness.CodeTool(ns, "caller", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  const [said, own] = await Promise.all([state.invokeTool('summarise', { message: 'a long text' }), state.invokeTool('tone', {})]);
  const { error } = await state.invokeTool('set_value', { key: 'k', value: 1 });
  return [said.status, said.result, own.result, await state.env('TONE'), error].join(', ');
} });`, nil)
		text := func(value string) []skeinv1.EnvVar {
			return []skeinv1.EnvVar{{Name: "TONE", Value: &value, Type: skeinv1.EnvText}}
		}
		called := harness.Prompt(ns, "summarise", "small", "tone")
		called.Spec.Text, called.Spec.ExposeAsTool, called.Spec.ToolDescription, called.Spec.Env = "Be {{ env.TONE }}.", true, "Summarises a text.", text("dry")
		prompt := harness.Prompt(ns, "prompt", "model", "caller", "tone", "prompt:summarise", "builtin:kv")
		prompt.Spec.Env, prompt.Spec.Tools[3].RequiresApproval = text("kind"), true
		create(ctx, tone, caller, called, prompt,
			harness.Scripted(ns, "small", harness.On("long", harness.Calls("tone", map[string]any{})), harness.After("tone", harness.Answer("short and {{.Last.Content}}"))),
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("caller", map[string]any{})), harness.After("caller", harness.Answer("it said {{.Last.Content}}"))),
			harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(last(say(ctx, t, 1, "go"))).To(And(HavePrefix("it said success, short and dry, kind, kind, calls of set_value have to be approved"), ContainSubstring("use queueTool")))
		Expect(t.Runs(ctx)).To(HaveExactElements(HaveField("Steps", 4)))
		page, err := t.Page(ctx, "maxDepth=1")
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(ContainElement(And(HaveField("Depth", 1), HaveField("Role", runtimev1.RoleAssistant), HaveField("Content", HaveValue(Equal("short and dry"))), HaveField("ParentID", Not(BeEmpty())))))
	}, SpecTimeout(2*time.Minute))

	It("are called at once where the prompt allows it, and their results keep the order of the calls", func(ctx SpecContext) {
		ns := namespace(ctx)
		second := make(chan struct{})
		server := toolServer(func(w http.ResponseWriter, r *http.Request, _ string) {
			if r.URL.Path == "/2" {
				close(second)
			}
			select { // the first ends only after the second has come: in sequence it would never
			case <-second:
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, r.URL.Path)
		})
		s := newMCP()
		s.AddTool(&mcp.Tool{Name: "hi", InputSchema: anyObject}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			select {
			case <-second:
			case <-ctx.Done():
			}
			return says("hi"), nil
		})
		s.AddTool(&mcp.Tool{Name: "ping", InputSchema: anyObject}, pong)
		create(ctx, harness.HTTPTool(ns, "get", skeinv1.HTTPTool{URL: server.URL + "/{{ arguments.n }}"}, map[string]any{"n": map[string]any{"type": "integer"}}, "n"), mcpTool(ns, "m", mcpServer(s).URL))
		prompt := harness.Prompt(ns, "prompt", "model", "get", "m")
		prompt.Spec.ParallelToolCalls = true
		create(ctx, prompt, harness.Scripted(ns, "model", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
			{Name: "m_hi", Arguments: harness.Raw(map[string]any{})}, {Name: "get", Arguments: harness.Raw(map[string]any{"n": 1})}, {Name: "get", Arguments: harness.Raw(map[string]any{"n": 2})},
		}}, harness.Answer("done")), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		listed(ctx, t, "m_ping", nil)
		ms := say(ctx, t, 1, "go")
		Expect(texts(ms)).To(Equal([]string{"user: go", "assistant:", "tool: hi", "tool: /1", "tool: /2", "assistant: done"}))
	}, SpecTimeout(2*time.Minute))
})
