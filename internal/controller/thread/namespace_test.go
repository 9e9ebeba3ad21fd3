package thread_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/kube/objects"
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
		r := thread.New(thread.Options{Client: e.Client, Live: live, Threads: e.Threads, Engine: e.Engine, Sandboxes: &forgotten{}, Recorder: e.Recorder, Clock: e.Clock})
		parent := &skeinv1.Thread{ObjectMeta: Meta("parent"), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
		e.Create(ctx, parent)
		Reconcile(ctx, r, parent)
		Expect(reads).To(Equal(1), "the namespace of a thread without a parent")
		for i := range 3 {
			s := &skeinv1.Subagent{ObjectMeta: Meta(fmt.Sprint("child-", i)), Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: "parent"}, AgentRef: skeinv1.LocalRef{Name: "a"}, Name: "helper"}}
			s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", string(parent.UID))}
			e.Create(ctx, s)
			t := &skeinv1.Thread{ObjectMeta: Meta(s.Name), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
			t.Finalizers = []string{skeinv1.Finalizer}
			t.OwnerReferences = []metav1.OwnerReference{{APIVersion: skeinv1.GroupVersion.String(), Kind: "Subagent", Name: s.Name, UID: s.UID, Controller: ptr.To(true)}}
			e.Create(ctx, t)
			Reconcile(ctx, r, t)
			Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveValue(And(HaveField("ParentID", string(parent.UID)), HaveField("NamespaceUID", "uid-7"))))
		}
		Expect(reads).To(Equal(1))
	})
})
