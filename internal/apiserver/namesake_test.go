package apiserver

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	"github.com/skein-dev/skein/internal/kube/objects"
)

var _ = Describe("A namespace with the name of one that was deleted", Label("STA-07"), func() {
	It("has none of its key-values", func(ctx SpecContext) {
		e := newEnv(func(o *Options) { o.LiveReader = o.Reader })
		e.svc.ServeNamespaces(func(ctx context.Context, name string) (string, error) { return objects.NamespaceUID(ctx, e.kube, name) })
		made := func(uid string) *corev1.Namespace {
			GinkgoHelper()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "door", UID: types.UID(uid)}}
			Expect(e.kube.Create(context.Background(), ns)).To(Succeed())
			return ns
		}
		kv := e.client().KV("door", "s")
		first := made("uid-1")
		Expect(kv.Set(ctx, "secret", "of the first", 0)).To(Succeed())
		Expect(kv.Set(ctx, "shared", "of the first", 0)).To(Succeed())
		Expect(e.kube.Delete(ctx, first)).To(Succeed())
		made("uid-2")
		Expect(kv.Get(ctx, "secret")).To(HaveField("Exists", false))
		Expect(kv.Keys(ctx, runtimeclient.KeyOptions{})).To(HaveField("Keys", BeEmpty()))
		Expect(kv.Delete(ctx, "secret")).To(BeFalse())
		Expect(kv.Set(ctx, "shared", "of the second", 0)).To(Succeed())
		Expect(kv.Get(ctx, "shared")).To(HaveField("Data", MatchJSON(`"of the second"`)))
		Expect(kv.Keys(ctx, runtimeclient.KeyOptions{})).To(HaveField("Keys", []string{"shared"}))
	})
})
