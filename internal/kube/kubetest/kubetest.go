// Package kubetest gives the tests of the ports an API server in memory.
package kubetest

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// Patience bounds what must happen. No spec measures it.
const Patience = 30 * time.Second

// Namespace is the namespace of the objects of Meta.
const Namespace = "demo"

// Scheme knows the kinds of Kubernetes and of Skein.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		panic(err)
	}
	if err := skeinv1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

// Cluster returns an API server in memory, with the indexes of the cache.
func Cluster(funcs interceptor.Funcs, objs ...client.Object) client.WithWatch {
	b := fake.NewClientBuilder().WithScheme(Scheme).WithObjects(objs...).WithStatusSubresource(
		&skeinv1.Thread{}, &skeinv1.Subagent{}, &skeinv1.ScheduledEffect{}, &skeinv1.SandboxPool{}, &corev1.Pod{},
	).WithInterceptorFuncs(funcs)
	for _, i := range objects.Indexes() {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	return b.Build()
}

// Meta returns the metadata of an object in Namespace.
func Meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: Namespace, Name: name} }

// Create creates objects.
func Create(ctx context.Context, c client.Client, objs ...client.Object) {
	GinkgoHelper()
	for _, o := range objs {
		Expect(c.Create(ctx, o)).To(Succeed())
	}
}

// NotReady matches an error with a reason for the Ready condition, and texts in its message.
func NotReady(reason string, says ...string) OmegaMatcher {
	texts := []OmegaMatcher{HaveField("Reason", reason)}
	for _, s := range says {
		texts = append(texts, HaveField("Message", ContainSubstring(s)))
	}
	return WithTransform(func(err error) any {
		nr, ok := err.(*definition.NotReadyError) //nolint:errorlint // the type itself is the contract
		if !ok {
			return definition.NotReadyError{Message: "another error: " + err.Error()}
		}
		return *nr
	}, And(texts...))
}
