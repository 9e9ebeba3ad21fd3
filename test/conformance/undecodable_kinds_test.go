package conformance

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// kindsAreServed declares one of each kind and sees that it works.
func kindsAreServed(ctx SpecContext) {
	GinkgoHelper()
	ns := namespace(ctx)
	create(ctx, harness.Effect(ns, "remind-me", remind),
		harness.CodeTool(ns, "plan", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  await state.scheduleEffect('remind_me', { about: 'tea' }, 0);
  return { status: 'success', result: 'planned' };
} });`, nil),
		harness.Endpoint(ns, "hello", "/hello", "export default () => 'hello';"),
		&skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: skeinv1.DefaultPoolName}})
	t := converse(ctx, ns, []string{"plan"}, []skeinv1.ScriptStep{
		harness.On("go", harness.Calls("plan", map[string]any{})),
		harness.After("plan", harness.Answer("planned")),
		harness.On("reminder", harness.Answer("thanks")),
	})
	content, status := result(say(ctx, t, 1, "go"), "plan")
	Expect(status).To(Equal("success"), content)
	Eventually(ctx, func(g Gomega) {
		ms, err := t.Messages(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(ms).To(ContainElement(HaveField("Content", HaveValue(ContainSubstring("reminder: tea")))))
	}).Should(Succeed(), "the effect fires")
	answer, err := conversation(t).Endpoint(ctx, runtimeclient.EndpointRequest{Method: http.MethodGet, Path: "/hello"})
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	Expect(answer).To(HaveHTTPBody("hello"))
	doorsAreServed(ctx, ns)
	childrenAreServed(ctx, t)
}

// doorsAreServed declares one of each kind by which the outside reaches threads or hears of them.
func doorsAreServed(ctx SpecContext, ns string) {
	GinkgoHelper()
	outside := newEar()
	keys := []corev1.SecretKeySelector{gatewayKey("first")}
	g := gatewayOf(ns, "chat", "agent")
	w := &skeinv1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}, Spec: skeinv1.WebhookSpec{
		URL: outside.URL, Events: []skeinv1.WebhookEvent{"run.ended"}, SigningKeys: keys, MaxAttempts: 1}}
	r := &skeinv1.WebhookReceiver{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "github"}, Spec: skeinv1.WebhookReceiverSpec{
		Form: skeinv1.WebhookGitHub, SigningKeys: keys, AgentRef: &skeinv1.LocalRef{Name: "agent"}, PerMinute: 100, MaxBytes: 1000}}
	create(ctx, gatewayKeys(ns), g, w, r)
	gatewayIs(ctx, g, condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	isReady(ctx, w, func() []metav1.Condition { return w.Status.Conditions })
	isReady(ctx, r, func() []metav1.Condition { return r.Status.Conditions })
	Expect(knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/message", `{"content":"reminder"}`).status).To(Equal(http.StatusOK))
	Eventually(ctx, outside.all).ShouldNot(BeEmpty(), "the webhook is told of the run")
}

// childrenAreServed declares a quota, and a child of a thread within it.
func childrenAreServed(ctx SpecContext, t *harness.Thread) {
	GinkgoHelper()
	ns := t.Namespace
	q := &skeinv1.ThreadQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "team"}}
	q.Spec.Hard.Threads = new(int64(100))
	create(ctx, q, &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "child"}, Spec: skeinv1.SubagentSpec{
		ParentRef: skeinv1.LocalRef{Name: t.Name}, AgentRef: skeinv1.LocalRef{Name: "agent"}, Name: "helper", Message: "reminder"}})
	isReady(ctx, q, func() []metav1.Condition { return q.Status.Conditions })
	takenIn(ctx, t, ContainSubstring("[subagent helper (child) completed]"))
}
