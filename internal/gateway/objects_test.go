package gateway

import (
	"context"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// objectsOf returns a client of objects in memory, which get a UID when they are created, as from a real API server. funcs are called
// in place of its other methods.
func objectsOf(funcs interceptor.Funcs) client.WithWatch {
	GinkgoHelper()
	funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		o.SetUID(types.UID(uuid.NewString()))
		return c.Create(ctx, o, opts...)
	}
	scheme := runtime.NewScheme()
	Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&skeinv1.Thread{}).WithInterceptorFuncs(funcs).Build()
}
