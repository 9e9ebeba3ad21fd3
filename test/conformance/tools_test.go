package conformance

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// useTool makes a thread whose model calls the tool with the arguments when told to "go", then says "done".
func useTool(ctx SpecContext, tool *skeinv1.Tool, args any) *harness.Thread {
	GinkgoHelper()
	create(ctx, tool)
	return converse(ctx, tool.Namespace, []string{tool.Name}, []skeinv1.ScriptStep{
		harness.On("go", harness.Calls(tool.Name, args)),
		harness.After(tool.Name, harness.Answer("done")),
	})
}

var _ = Describe("Tools", func() {
	It("are written in TypeScript and have the thread as state", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useTool(ctx, harness.CodeTool(ns, "totals", `
import { defineTool } from '@standardagents/builder';
import { z } from 'zod';
interface Row { region: string; amount: number }
export default defineTool({
  description: 'sum of a column by region',
  args: z.object({ path: z.string() }),
  execute: async (state, args) => {
    const bytes = await state.readFile(args.path);
    if (!bytes) return { status: 'error', error: 'no such file: ' + args.path };
    const rows: Row[] = new TextDecoder().decode(bytes).trim().split('\n').slice(1)
      .map((l) => { const [region, amount] = l.split(','); return { region, amount: Number(amount) }; });
    const sums: Record<string, number> = {};
    for (const r of rows) sums[r.region] = (sums[r.region] ?? 0) + r.amount;
    await state.setValue('sums', sums);
    return { status: 'success', result: JSON.stringify(sums) };
  },
});`, map[string]any{"path": map[string]any{"type": "string"}}, "path"), map[string]any{"path": "/orders.csv"})
		Expect(t.WriteFile(ctx, "/orders.csv", "text/csv", []byte("region,amount\nnorth,2\nsouth,3\nnorth,5\n"))).To(Succeed())
		content, status := result(say(ctx, t, 1, "go"), "totals")
		Expect(status).To(Equal("success"), content)
		Expect(content).To(MatchJSON(`{"north":7,"south":3}`))
		Expect(t.Value(ctx, "sums")).To(MatchJSON(`{"north":7,"south":3}`))
	}, SpecTimeout(2*time.Minute))

	It("have their arguments checked before the call", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := useTool(ctx, harness.CodeTool(ns, "picky", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => { await state.setValue('called', true); return { status: 'success', result: 'ran' }; } });
`, map[string]any{"count": map[string]any{"type": "integer", "minimum": 1}}, "count"), map[string]any{"count": "many"})
		ms := say(ctx, t, 1, "go")
		content, status := result(ms, "picky")
		Expect(status).To(Equal("error"))
		Expect(content).To(And(ContainSubstring("count"), ContainSubstring("integer")))
		Expect(last(ms)).To(Equal("done"), "an error of a tool does not end the loop")
		Expect(t.Value(ctx, "called")).To(MatchJSON("null"), "the code was not called")
	}, SpecTimeout(2*time.Minute))

	It("answer arguments that are no JSON and names that do not exist", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, []string{"builtin:files"}, []skeinv1.ScriptStep{
			{ToolCalls: []skeinv1.ScriptToolCall{{Name: "list_files", RawArguments: `{"prefix": `}, {Name: "no_such_tool", Arguments: harness.Raw(map[string]any{})}}},
			harness.Answer("survived"),
		})
		ms := say(ctx, t, 1, "go")
		content, status := result(ms, "list_files")
		Expect(status).To(Equal("error"))
		Expect(content).To(ContainSubstring("JSON"))
		content, status = result(ms, "no_such_tool")
		Expect(status).To(Equal("error"))
		Expect(content).To(ContainSubstring("list_files"), "it says which tools there are")
		Expect(last(ms)).To(Equal("survived"))
	}, SpecTimeout(2*time.Minute))

	It("keep the order of the calls in their results", Label("TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.CodeTool(ns, "wait-for", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state, args) => {
  await state.setValue('seen-' + args.n, true);
  // The first call ends only after the second one has run: with calls in sequence this would never settle.
  while (args.n === 1 && !(await state.getValue('seen-2')));
  return { status: 'success', result: String(args.n) };
} });`, map[string]any{"n": map[string]any{"type": "integer"}}, "n"))
		model := harness.Scripted(ns, "model",
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{Name: "wait_for", Arguments: harness.Raw(map[string]any{"n": 1})}, {Name: "wait_for", Arguments: harness.Raw(map[string]any{"n": 2})}}},
			harness.Answer("done"))
		prompt := harness.Prompt(ns, "prompt", "model", "wait-for")
		prompt.Spec.ParallelToolCalls = true
		create(ctx, model, prompt, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		ms := say(ctx, ready(ctx, cluster.Thread(ns, "thread")), 1, "go")
		Expect(texts(ms)).To(Equal([]string{"user: go", "assistant:", "tool: 1", "tool: 2", "assistant: done"}))
	}, SpecTimeout(2*time.Minute))

	DescribeTable("survive their code", Label("TOL-02"), func(ctx SpecContext, limit time.Duration, body string, want OmegaMatcher) {
		ns := namespace(ctx)
		tool := harness.CodeTool(ns, "bad", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state, args) => { `+body+` } });`, nil)
		tool.Spec.Timeout = &metav1.Duration{Duration: limit}
		t := useTool(ctx, tool, map[string]any{})
		ms := say(ctx, t, 1, "go")
		content, status := result(ms, "bad")
		Expect(status).To(Equal("error"), content)
		Expect(content).To(want)
		Expect(last(ms)).To(Equal("done"))
	},
		Entry("that loops for ever", 2*time.Second, `for (;;);`, ContainSubstring("2s"), SpecTimeout(2*time.Minute)),
		Entry("that exhausts memory", time.Minute, `const a: unknown[] = []; for (;;) a.push(new Array(1000).fill(1));`, ContainSubstring("memory"), SpecTimeout(2*time.Minute)),
		Entry("that throws", time.Minute, `throw new TypeError('the file is empty');`, And(ContainSubstring("TypeError"), ContainSubstring("the file is empty")), SpecTimeout(2*time.Minute)),
		Entry("that never settles", time.Minute, `await new Promise(() => {});`, ContainSubstring("settles"), SpecTimeout(2*time.Minute)),
	)

	It("that do not compile say where", Label("K8S-02", "TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		tool := harness.CodeTool(ns, "broken", "export default {\n  execute: async () => {\n    const x: = 3;\n  },\n};\n", nil)
		create(ctx, tool)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(tool), tool)).To(Succeed())
			g.Expect(tool.Status.Conditions).To(ContainElement(And(
				condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonCompileFailed),
				HaveField("Message", ContainSubstring("3:14")),
			)))
		}).Should(Succeed())
		before := tool.DeepCopy()
		tool.Spec.Code.Inline = "export default { execute: async () => 1 };"
		Expect(cluster.Client.Patch(ctx, tool, client.MergeFrom(before))).To(Succeed()) // its status may be written meanwhile
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(tool), tool)).To(Succeed())
			g.Expect(tool.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("Hostile sources", func() {
	It("do not take the manager down when it compiles them", Label("K8S-02", "TOL-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		pid := manager.PID()
		for name, source := range map[string]string{
			"parentheses": strings.Repeat("(", 200_000),
			"arrows":      strings.Repeat("x=>", 5_000) + "1",
		} {
			tool := harness.CodeTool(ns, name, "export default "+source, nil)
			create(ctx, tool)
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, key(tool), tool)).To(Succeed())
				g.Expect(tool.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonCompileFailed)))
			}).Should(Succeed(), name)
		}
		Expect(manager.PID()).To(Equal(pid))
		Expect(manager.Running()).To(BeTrue())
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(last(say(ctx, t, 1, "still there?"))).To(Equal("echo: still there?"))
	}, SpecTimeout(2*time.Minute))
})
