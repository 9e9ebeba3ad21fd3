package definitions_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A Secret that the manager may not read", Label("K8S-13"), func() {
	refused := apierrors.NewForbidden(corev1.Resource("secrets"), "key", errors.New("no RBAC policy matched"))
	forbidden := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if m, ok := o.(*metav1.PartialObjectMetadata); ok && m.Kind == "Secret" {
				return refused
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if _, ok := l.(*corev1.SecretList); ok {
				return refused
			}
			return c.List(ctx, l, opts...)
		},
	}
	sel := corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}, Key: "k"}

	It("keeps a Model from being Ready, and the error says what to bind", func(ctx SpecContext) {
		c := kubetest.Cluster(forbidden)
		_, err := resolver(c).Models.Resolve(ctx, &skeinv1.Model{ObjectMeta: kubetest.Meta("m"), Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderOpenAI, Credentials: &skeinv1.ModelCredentials{SecretKeyRef: sel}}})
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonSecretForbidden, "spec.credentials.secretKeyRef", `"key"`,
			"kubectl create rolebinding skein-secret-reader --namespace=demo --clusterrole=skein-secret-reader --serviceaccount=skein-system:skein-manager"))
	})

	It("is not taken for one that is missing where it is optional", func(ctx SpecContext) {
		yes := true
		optional := sel
		optional.Optional = &yes
		err := resolver(kubetest.Cluster(forbidden)).Variables.Check(ctx, kubetest.Namespace, []skeinv1.EnvVar{{Name: "A", ValueFrom: &skeinv1.EnvVarSource{SecretKeyRef: &optional}}})
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonSecretForbidden))
	})

	It("gives no variable by its label, and takes none away that comes from a ConfigMap", func(ctx SpecContext) {
		labels := map[string]string{skeinv1.LabelEnvScope: skeinv1.EnvScopeInstance}
		m := kubetest.Meta("instance")
		m.Labels = labels
		c := kubetest.Cluster(forbidden, &corev1.Secret{ObjectMeta: m, Data: map[string][]byte{"A": []byte("secret")}}, &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"B": "text"}})
		got, err := definitions.NewEnv(resolver(c).Variables, c).Layers(ctx, &store.Thread{Namespace: kubetest.Namespace, Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Values).To(Equal([]thread.EnvValue{{Name: "B", Value: "text", Type: store.EnvText, Source: thread.EnvFromInstance}}))
	})
})
