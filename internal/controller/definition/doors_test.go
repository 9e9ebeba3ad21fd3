package definition

import (
	"context"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

var _ = Describe("What people and servers outside reach is Ready only when it works:", Label("K8S-02"), func() {
	var (
		e *Env
		c *checker
	)
	hosts := func(text string) []outbound.Host {
		list, err := outbound.ParseAnnotation(text)
		Expect(err).NotTo(HaveOccurred())
		return list
	}
	keys := []corev1.SecretKeySelector{{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "current"}}
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		c = &checker{reader: e.Client, defs: definitions.New(e.Client, objects.NewContents(e.Client, e.Client), compile.Compile, providers.NewFactory(nil))}
		e.Create(ctx, &corev1.Secret{ObjectMeta: Meta("keys"), Data: map[string][]byte{"current": []byte("0123456789abcdef0123456789abcdef")}})
	})
	expect := func(list []metav1.Condition, reason, says string, stalled bool) {
		GinkgoHelper()
		Expect(conditions.Ready(list)).To(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(says))))
		Expect(meta.IsStatusConditionTrue(list, skeinv1.ConditionStalled)).To(Equal(stalled))
	}
	agent := func(ctx context.Context) *skeinv1.Agent {
		a := &skeinv1.Agent{ObjectMeta: Meta("a")}
		e.Create(ctx, a)
		return a
	}

	It("a ThreadGateway waits for its Agent to exist and to be Ready", func(ctx SpecContext) {
		g := &skeinv1.ThreadGateway{ObjectMeta: Meta("g"), Spec: skeinv1.ThreadGatewaySpec{AgentRef: skeinv1.LocalRef{Name: "a"}, SigningKeys: keys}}
		e.Create(ctx, g)
		r := of(e, func(g *skeinv1.ThreadGateway) *skeinv1.DefinitionStatus { return &g.Status }, c.gateway)
		step := func(reason, says string) {
			GinkgoHelper()
			Reconcile(ctx, r, g)
			expect(Get(ctx, e, g).Status.Conditions, reason, says, false)
		}
		step(skeinv1.ReasonReferenceNotFound, `Agent "a" does not exist`)
		a := agent(ctx)
		step(skeinv1.ReasonReferenceNotReady, `Agent "a" has not been checked yet`)
		e.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `Prompt "p" does not exist`)
		step(skeinv1.ReasonReferenceNotReady, `Agent "a" is not ready: Prompt "p" does not exist`)
		e.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		step(skeinv1.ReasonReady, "")
		c.listenerOff = true
		step(skeinv1.ReasonListenerOff, "the manager's listener for gateways is off: start it with --gateway-bind-address (docs/gateway.md)")
	})

	It("a WebhookReceiver waits for its Agent", Label("EVT-05"), func(ctx SpecContext) {
		w := &skeinv1.WebhookReceiver{ObjectMeta: Meta("w"), Spec: skeinv1.WebhookReceiverSpec{Form: skeinv1.WebhookGitHub, AgentRef: &skeinv1.LocalRef{Name: "a"}, SigningKeys: keys}}
		e.Create(ctx, w)
		r := of(e, func(w *skeinv1.WebhookReceiver) *skeinv1.DefinitionStatus { return &w.Status }, c.receiver)
		step := func(reason, says string) {
			GinkgoHelper()
			Reconcile(ctx, r, w)
			expect(Get(ctx, e, w).Status.Conditions, reason, says, false)
		}
		step(skeinv1.ReasonReferenceNotFound, `Agent "a" does not exist in namespace "demo": create it, or correct spec.agentRef`)
		a := agent(ctx)
		e.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `Prompt "p" does not exist`)
		step(skeinv1.ReasonReferenceNotReady, `Agent "a" is not ready: Prompt "p" does not exist`)
		e.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		step(skeinv1.ReasonReady, "")
		c.listenerOff = true
		step(skeinv1.ReasonListenerOff, "start it with --gateway-bind-address")
	})

	It("a WebhookReceiver waits for its Thread, and stalls when that has ended", Label("EVT-05"), func(ctx SpecContext) {
		w := &skeinv1.WebhookReceiver{ObjectMeta: Meta("w"), Spec: skeinv1.WebhookReceiverSpec{Form: skeinv1.WebhookGitHub, ThreadRef: &skeinv1.LocalRef{Name: "t"}, SigningKeys: keys}}
		e.Create(ctx, w)
		r := of(e, func(w *skeinv1.WebhookReceiver) *skeinv1.DefinitionStatus { return &w.Status }, c.receiver)
		step := func(reason, says string, stalled bool) {
			GinkgoHelper()
			Reconcile(ctx, r, w)
			expect(Get(ctx, e, w).Status.Conditions, reason, says, stalled)
		}
		step(skeinv1.ReasonReferenceNotFound, `Thread "t" does not exist in namespace "demo": create it, or correct spec.threadRef`, false)
		t := &skeinv1.Thread{ObjectMeta: Meta("t")}
		e.Create(ctx, t)
		step(skeinv1.ReasonReferenceNotReady, `Thread "t" has not been checked yet`, false)
		e.SetReady(ctx, t, &t.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `Agent "a" does not exist`)
		step(skeinv1.ReasonReferenceNotReady, `Thread "t" is not ready: Agent "a" does not exist`, false)
		e.SetReady(ctx, t, &t.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		step(skeinv1.ReasonReady, "", false)
		meta.SetStatusCondition(&t.Status.Conditions, metav1.Condition{Type: skeinv1.ConditionTerminated, Status: metav1.ConditionTrue, Reason: skeinv1.ReasonTerminatedByRequest})
		Expect(e.Client.Status().Update(ctx, t)).To(Succeed())
		step(skeinv1.ReasonInvalidSpec, `Thread "t" has ended and takes no more messages: name another Thread in spec.threadRef`, true)
	})

	DescribeTable("a Webhook needs an address that the installation lets it reach", Label("EVT-05"), func(ctx SpecContext, policy outbound.Policy, url, reason, says string, stalled bool) {
		c.defs.JudgeAddresses(outbound.New(policy))
		w := &skeinv1.Webhook{ObjectMeta: Meta("w"), Spec: skeinv1.WebhookSpec{URL: url, SigningKeys: keys}}
		e.Create(ctx, w)
		Reconcile(ctx, of(e, func(w *skeinv1.Webhook) *skeinv1.DefinitionStatus { return &w.Status }, c.webhook), w)
		expect(Get(ctx, e, w).Status.Conditions, reason, says, stalled)
	},
		Entry("not the machine itself", outbound.Policy{}, "https://127.0.0.1/x", skeinv1.ReasonAddressForbidden, "spec.url: the host 127.0.0.1", true),
		Entry("not the metadata of a cloud", outbound.Policy{}, "http://169.254.169.254/latest", skeinv1.ReasonAddressForbidden, "spec.url: the host 169.254.169.254", true),
		Entry("not what a port of the API server hides behind",
			outbound.Policy{Forbidden: func(at netip.AddrPort) bool { return at.Addr() == netip.MustParseAddr("198.51.100.7") }},
			"https://198.51.100.7/x", skeinv1.ReasonAddressForbidden, "spec.url: the host 198.51.100.7", true),
		Entry("not a private one, until the Namespace opens it", outbound.Policy{}, "https://10.1.2.3/x", skeinv1.ReasonAddressNotAllowed, outbound.AnnotationPrivateHosts, false),
		Entry("not a private one, and the text is about webhooks", outbound.Policy{}, "https://10.1.2.3/x", skeinv1.ReasonAddressNotAllowed, "is not public, so webhooks cannot reach it", false),
		Entry("not one that the manager's flag leaves out", outbound.Policy{Allowed: hosts("a.example")}, "https://192.0.2.1/x",
			skeinv1.ReasonAddressNotAllowed, "is not one that webhooks may reach: the manager's --tool-allowed-hosts", false),
		Entry("a private one that is open", outbound.Policy{Opened: func(string) []outbound.Host { return hosts("10.1.2.3") }}, "https://10.1.2.3/x", skeinv1.ReasonReady, "", false),
	)

	It("a Webhook waits for the Agents that it names", Label("EVT-05"), func(ctx SpecContext) {
		w := &skeinv1.Webhook{ObjectMeta: Meta("w"), Spec: skeinv1.WebhookSpec{URL: "https://ci.example.com/x", SigningKeys: keys, AgentRefs: []skeinv1.LocalRef{{Name: "a"}}}}
		e.Create(ctx, w)
		r := of(e, func(w *skeinv1.Webhook) *skeinv1.DefinitionStatus { return &w.Status }, c.webhook)
		Reconcile(ctx, r, w)
		expect(Get(ctx, e, w).Status.Conditions, skeinv1.ReasonReferenceNotFound, `Agent "a" does not exist in namespace "demo": create it, or correct spec.agentRefs[0].name`, false)
		agent(ctx)
		Reconcile(ctx, r, w)
		expect(Get(ctx, e, w).Status.Conditions, skeinv1.ReasonReady, "", false)
	})
})
