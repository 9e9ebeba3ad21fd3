package thread_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
)

var _ = Describe("The children of a stored thread", Label("SUB-08", "K8S-07"), func() {
	It("get its namespace from it, without a read of the API server for each", func(ctx SpecContext) {
		e := New(ctx)
		e.ReadyAgent(ctx, "a")
		Expect(e.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, UID: "uid-7"}})).To(Succeed())
		reads := 0
		live := interceptor.NewClient(e.Client, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, opts...)
			},
		})
		r := newReconciler(e, func(o *thread.Options) { o.Live = live })
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		Expect(reads).To(Equal(1), "the namespace of a thread without a parent")
		for i := range 3 {
			t := newOwned(ctx, e, newSubagent(ctx, e, parent, fmt.Sprint("child-", i)), "")
			Reconcile(ctx, r, t)
			Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveValue(And(HaveField("ParentID", string(parent.UID)), HaveField("NamespaceUID", "uid-7"))))
		}
		Expect(reads).To(Equal(1))
	})
})
