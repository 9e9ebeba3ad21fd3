package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The runtime context", Label("TOL-04"), func() {
	It("is plain data: code that calls it is told so, and what to use instead", func(ctx SpecContext) {
		ns := namespace(ctx)
		defaultPool(ctx, ns, skeinv1.SandboxPoolSpec{RuntimeContext: harness.Raw(map[string]any{"env": map[string]any{"DATABASE": map[string]any{"name": "orders"}}})})
		create(ctx, harness.CodeTool(ns, "query", "import { defineTool } from '@standardagents/builder';\n"+
			`export default defineTool({ description: 'x', execute: async (state) => {
  const env = state._notPackableRuntimeContext?.env as any;
  if (!env?.DATABASE) return { status: 'error', error: 'Database not available' };
  const row = await env.DATABASE.prepare('SELECT 1').bind(1).first();
  return { status: 'success', result: JSON.stringify(row) };
} });`, nil))
		t := golang(converse(ctx, ns, []string{"query"}, []skeinv1.ScriptStep{harness.Echo()}))
		got, err := t.InvokeTool(ctx, "query", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Status).To(Equal(runtimev1.ToolError))
		Expect(got.Error).To(And(ContainSubstring("not a function"), ContainSubstring("state._notPackableRuntimeContext.env.DATABASE.prepare"), ContainSubstring("plain data"), ContainSubstring("Tool (http or mcp)")))
	}, SpecTimeout(4*time.Minute))

	It("gives code what the platform team configured, and marks a tool that reads it as not packable", func(ctx SpecContext) {
		ns := namespace(ctx)
		defaultPool(ctx, ns, skeinv1.SandboxPoolSpec{RuntimeContext: harness.Raw(map[string]any{"env": map[string]any{"region": "north"}})})
		reads := harness.CodeTool(ns, "reads", "import { defineTool } from '@standardagents/builder';\n"+
			`export default defineTool({ description: 'x', execute: async (state) => {
  const env = state._notPackableRuntimeContext?.env as { region: string } | undefined;
  return { status: 'success', result: String(env?.region) };
} });`, nil)
		other := harness.CodeTool(ns, "other", `// It does not read state._notPackableRuntimeContext.
export default { description: 'x', execute: async (state: any) => String(state['_notPackable' + 'RuntimeContext']) };`, nil)
		create(ctx, reads, other)
		packable := func(t *skeinv1.Tool, status metav1.ConditionStatus, reason string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(t), t)).To(Succeed())
				g.Expect(t.Status.Conditions).To(ContainElements(condition(skeinv1.ConditionPackable, status, reason), condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
			}).Should(Succeed())
		}
		packable(reads, metav1.ConditionFalse, skeinv1.ReasonReadsRuntimeContext)
		packable(other, metav1.ConditionTrue, skeinv1.ReasonPortable)
		t := golang(converse(ctx, ns, []string{"reads", "other"}, []skeinv1.ScriptStep{harness.Echo()}))
		got, err := t.InvokeTool(ctx, "reads", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Result).To(Equal("north"), got.Error)
		got, err = t.InvokeTool(ctx, "other", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Result).To(Equal("undefined"), "none reads it without being marked")
	}, SpecTimeout(5*time.Minute))
})
