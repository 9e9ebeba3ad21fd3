package sandboxpool_test

import (
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/sandboxpool"
)

// turning is an authority that changes right after it has issued its first certificate, as when another replica of
// the manager, or a connection to a sandbox, finds the change due at that moment.
type turning struct {
	sandboxpool.Authority
	issued int
}

func (t *turning) Fingerprint() string {
	if t.issued == 0 {
		return "before"
	}
	return "after"
}

func (t *turning) Server(pool, namespace string) (map[string][]byte, time.Time, error) {
	t.issued++
	return t.Authority.Server(pool, namespace)
}

var _ = Describe("The certificate of a pool", Label("COD-08"), func() {
	It("is issued again when the authority turned while it was issued", func(ctx SpecContext) {
		w := newWorld(ctx)
		a, o := &turning{Authority: w.authority}, w.options()
		o.Authority = a
		w.r = sandboxpool.New(o)
		for range 3 {
			w.reconcile(ctx)
		}
		Expect(a.issued).To(Equal(2))
	})

	It("waits for a right to its Secret, and says what to bind", Label("K8S-13"), func(ctx SpecContext) {
		w := newWorld(ctx)
		o := w.options()
		o.Account = "system:serviceaccount:skein-system:skein-manager"
		w.r = sandboxpool.New(o)
		w.Fail(func(_ string, o client.Object) error {
			if _, ok := o.(*corev1.Secret); ok && o.GetNamespace() == w.pool.Namespace {
				return apierrors.NewForbidden(corev1.Resource("secrets"), o.GetName(), errors.New(`User "skein-manager" cannot create resource "secrets" in API group "" in the namespace "ns"`))
			}
			return nil
		})
		_, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.pool)})
		Expect(err).To(HaveOccurred(), "it is tried again")
		Expect(w.ready(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonSecretForbidden), HaveField("Message", ContainSubstring(
			"kubectl create rolebinding skein-sandbox-certificates --namespace="+w.pool.Namespace+" --clusterrole=skein-sandbox-certificates --serviceaccount=skein-system:skein-manager"))))
		Expect(w.Recorder.Events).To(Receive(ContainSubstring("SecretForbidden")))
		Expect(w.pods(ctx)).To(BeEmpty())

		By("saying what a quota refuses in the API server's words")
		w.Fail(func(_ string, o client.Object) error {
			if _, ok := o.(*corev1.Secret); ok && o.GetNamespace() == w.pool.Namespace {
				return apierrors.NewForbidden(corev1.Resource("secrets"), o.GetName(), errors.New("exceeded quota: few, requested: count/secrets=1"))
			}
			return nil
		})
		_, err = w.r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.pool)})
		Expect(err).To(HaveOccurred())
		Expect(w.ready(ctx)).To(And(HaveField("Reason", Not(Equal(skeinv1.ReasonSecretForbidden))), HaveField("Message", And(
			ContainSubstring("exceeded quota: few"), Not(ContainSubstring("rolebinding"))))))
		w.Fail(nil)
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(HaveLen(2))
	})
})
