package sandboxes_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/sandboxes"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// asked records the engine of each requested process.
type asked struct{ engines []sandbox.Engine }

func (a *asked) AcquireOn(_ context.Context, _ string, e sandbox.Engine) (sandbox.Sandbox, error) {
	a.engines = append(a.engines, e)
	return nil, nil
}
func (*asked) Release(string) {}
func (*asked) Close() error   { return nil }

var _ = Describe("Sandboxes that are processes", func() {
	It("have the engine of the thread's pool, and the default one where there is no pool", func(ctx SpecContext) {
		fast := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "fast"}, Spec: skeinv1.SandboxPoolSpec{Engine: skeinv1.SandboxEngineV8}}
		byDefault := fast.DeepCopy()
		byDefault.Namespace, byDefault.Name = "other", skeinv1.DefaultPoolName
		pool := &asked{}
		p := sandboxes.NewProcesses(pool, fake.NewClientBuilder().WithScheme(kubetest.Scheme).WithObjects(fast, byDefault).Build())
		DeferCleanup(p.Close)
		for _, c := range []struct{ namespace, pool string }{{kubetest.Namespace, "fast"}, {kubetest.Namespace, ""}, {"other", ""}, {"other", "gone"}} {
			_, release, err := p.Acquire(ctx, &store.Thread{ID: "t", Namespace: c.namespace}, c.pool)
			Expect(err).NotTo(HaveOccurred())
			release()
		}
		Expect(pool.engines).To(Equal([]sandbox.Engine{sandbox.V8, sandbox.QuickJS, sandbox.V8, sandbox.QuickJS}))
	})
})
