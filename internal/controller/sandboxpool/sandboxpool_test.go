package sandboxpool_test

import (
	"bytes"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/sandboxpool"
	"github.com/skein-dev/skein/internal/kube/sandboxca"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

var _ = Describe("The sandboxpool controller", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("makes warm pods, behind a certificate and a NetworkPolicy that lets nothing out", Label("COD-08", "COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(HaveLen(2))
		Expect(w.pods(ctx)).To(HaveEach(And(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelSandboxState, "warm")), HaveField("OwnerReferences", HaveExactElements(HaveField("Kind", "SandboxPool"))))))
		Expect(w.ready(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonScaling), HaveField("Message", "0 of 2 warm sandboxes are ready")))
		var np networkingv1.NetworkPolicy
		Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "skein-sandbox-default"}, &np)).To(Succeed())
		Expect(np.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
		Expect(np.Spec.Egress).To(BeEmpty())
		Expect(np.Spec.Ingress).To(HaveExactElements(And(HaveField("From", HaveLen(1)), HaveField("Ports", HaveLen(1)))))
		Expect(np.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels).To(HaveKeyWithValue(corev1.LabelMetadataName, "skein-system"))
		var s corev1.Secret
		Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: sandboxpod.SecretName("default")}, &s)).To(Succeed())
		ca, _, err := w.authority.Client(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(pki.Check(w.Clock, ca, pki.Pair{Cert: s.Data["tls.crt"], Key: s.Data["tls.key"]}, time.Hour)).To(Succeed())
		Expect(s.Data).NotTo(HaveKey("ca.key"))

		w.allUp(ctx)
		w.reconcile(ctx)
		Expect(w.ready(ctx)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonWarm)))
		Expect(w.pool.Status).To(And(HaveField("Warm", int32(2)), HaveField("Claimed", int32(0)), HaveField("ObservedGeneration", int64(1))))
		w.Writes()
		w.Clock.Step(time.Minute)
		w.reconcile(ctx)
		Expect(w.Writes()).To(BeEmpty())
	})

	It("refills after a claim with one write", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		w.allUp(ctx)
		w.reconcile(ctx)
		w.Clock.Step(time.Minute)
		w.claim(ctx, w.pods(ctx)[0])
		w.Writes()
		w.reconcile(ctx)
		Expect(w.Writes()).To(Equal(map[string]int{"create Pod": 1}))
		w.allUp(ctx)
		w.Clock.Step(time.Second)
		w.reconcile(ctx)
		Expect(w.Writes()).To(BeEmpty(), "counts are shown later, and together")
		w.Clock.Step(30 * time.Second)
		w.reconcile(ctx)
		Expect(w.Writes()).To(Equal(map[string]int{"status SandboxPool": 1}))
		Expect(w.get(ctx).Status).To(And(HaveField("Warm", int32(2)), HaveField("Claimed", int32(1))))
	})

	It("keeps within its bound", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		for range 4 {
			w.allUp(ctx)
			for _, p := range w.pods(ctx) {
				if p.Labels[skeinv1.LabelSandboxState] == "warm" {
					w.claim(ctx, p)
				}
			}
			w.reconcile(ctx)
		}
		Expect(w.pods(ctx)).To(HaveLen(5))
	})

	It("clears away claimed pods that have ended, and those above the number", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		w.allUp(ctx)
		p := w.pods(ctx)[0]
		w.claim(ctx, p)
		p = w.pods(ctx)[0]
		w.become(ctx, &p, corev1.PodStatus{Phase: corev1.PodFailed})
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(HaveEach(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelSandboxState, "warm"))))
		Expect(w.pods(ctx)).To(HaveLen(2))
		w.get(ctx)
		w.pool.Spec.Warm = 0
		Expect(w.Client.Update(ctx, w.pool)).To(Succeed())
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(BeEmpty())
		w.reconcile(ctx)
		Expect(w.ready(ctx)).To(HaveField("Status", metav1.ConditionTrue))
	})

	It("renews the certificate before it ends, and with another authority", func(ctx SpecContext) {
		read := func() []byte {
			GinkgoHelper()
			var s corev1.Secret
			Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: sandboxpod.SecretName("default")}, &s)).To(Succeed())
			return s.Data["tls.crt"]
		}
		result := w.reconcile(ctx)
		first := read()
		w.Clock.Step(59 * 24 * time.Hour)
		w.reconcile(ctx)
		Expect(read()).To(Equal(first))
		Expect(result.RequeueAfter).To(BeNumerically("<=", 60*24*time.Hour))
		w.Clock.Step(2 * 24 * time.Hour)
		w.reconcile(ctx)
		second := read()
		Expect(second).NotTo(Equal(first))
		Expect(w.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "skein-system", Name: sandboxca.SecretName}})).To(Succeed())
		Expect(w.authority.Load(ctx)).To(Succeed())
		w.reconcile(ctx)
		Expect(read()).NotTo(Equal(second))
	})

	It("tells its pods of the next authority before anything is issued by it", Label("COD-08"), func(ctx SpecContext) {
		read := func() (cert []byte, trusted int) {
			GinkgoHelper()
			var s corev1.Secret
			Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: sandboxpod.SecretName("default")}, &s)).To(Succeed())
			return s.Data["tls.crt"], bytes.Count(s.Data["ca.crt"], []byte("BEGIN CERTIFICATE"))
		}
		key := func() []byte {
			GinkgoHelper()
			var s corev1.Secret
			Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: sandboxpod.SecretName("default")}, &s)).To(Succeed())
			return s.Data["tls.key"]
		}
		authority := func() []byte {
			GinkgoHelper()
			var s corev1.Secret
			Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: "skein-system", Name: sandboxca.SecretName}, &s)).To(Succeed())
			return s.Data["tls.crt"]
		}
		w.reconcile(ctx)
		_, trusted := read()
		Expect(trusted).To(Equal(1))
		old := authority()

		terms := sandboxca.DefaultTerms()
		w.Clock.Step(terms.Authority - terms.Renewal)
		result := w.reconcile(ctx)
		announced, trusted := read()
		Expect(trusted).To(Equal(2))
		Expect(authority()).To(Equal(old))
		Expect(pki.Check(w.Clock, old, pki.Pair{Cert: announced, Key: key()}, time.Hour)).To(Succeed(), "the old one still issues")
		Expect(result.RequeueAfter).To(BeNumerically("<=", terms.Overlap))

		w.Clock.Step(terms.Overlap)
		w.reconcile(ctx)
		Expect(authority()).NotTo(Equal(old))
		turned, trusted := read()
		Expect(trusted).To(Equal(2), "pods and managers that were there before are still trusted")
		Expect(turned).NotTo(Equal(announced))
		Expect(pki.Check(w.Clock, authority(), pki.Pair{Cert: turned, Key: key()}, time.Hour)).To(Succeed())
	})

	It("makes no pods where sandboxes are processes", func(ctx SpecContext) {
		o := w.options()
		o.ProcessMode, o.Authority = true, nil
		w.r = sandboxpool.New(o)
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(BeEmpty())
		Expect(w.ready(ctx)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonProcessMode)))
	})
})
