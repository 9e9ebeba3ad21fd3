package kube_test

import (
	"context"
	"testing"
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
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/model/provider"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

func TestKube(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kube")
}

// patience bounds what must happen. No spec measures it.
const patience = 30 * time.Second

const ns = "demo"

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		panic(err)
	}
	if err := skeinv1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

// cluster is an API server in memory, with the indexes of the cache.
func cluster(funcs interceptor.Funcs, objs ...client.Object) client.WithWatch {
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).WithStatusSubresource(
		&skeinv1.Thread{}, &skeinv1.Subagent{}, &skeinv1.ScheduledEffect{}, &skeinv1.SandboxPool{}, &corev1.Pod{},
	).WithInterceptorFuncs(funcs)
	for _, i := range kube.Indexes() {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	return b.Build()
}

func definitions(c client.WithWatch) *kube.Definitions {
	return kube.NewDefinitions(c, kube.NewContents(c, c), compile.Compile, provider.NewFactory(nil))
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func create(ctx context.Context, c client.Client, objs ...client.Object) {
	GinkgoHelper()
	for _, o := range objs {
		Expect(c.Create(ctx, o)).To(Succeed())
	}
}
