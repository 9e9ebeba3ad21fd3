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
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A namespace with the name of one that was deleted", Label("STA-07"), func() {
	var e *testEnv
	made := func(uid string) *corev1.Namespace {
		GinkgoHelper()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "door", UID: types.UID(uid)}}
		Expect(e.kube.Create(context.Background(), ns)).To(Succeed())
		return ns
	}
	BeforeEach(func() {
		e = newEnv(func(o *Options) { o.LiveReader = o.Reader })
		e.svc.ServeNamespaces(func(ctx context.Context, name string) (string, error) { return objects.NamespaceUID(ctx, e.kube, name) })
	})

	It("shows none of the usage and events of the earlier one", Label("LOG-03", "STA-06"), func(ctx SpecContext) {
		ran := func(uid, id string) {
			GinkgoHelper()
			made := store.Thread{ID: id, Namespace: "door", NamespaceUID: uid, Name: id, Agent: "helper"}
			_, _, err := e.svc.Create(ctx, thread.NewThread{Thread: made})
			Expect(err).NotTo(HaveOccurred())
			Expect(e.svc.Store().Apply(ctx, id, nil, &store.PutRun{Run: store.Run{ID: "sess_" + id, Agent: "helper", Status: store.RunSucceeded}})).To(Succeed())
		}
		first := made("uid-1")
		ran("uid-1", "one")
		Expect(e.svc.Purge(ctx, "one")).To(Succeed())
		Expect(e.kube.Delete(ctx, first)).To(Succeed())
		made("uid-2")
		ran("uid-2", "two")
		Expect(e.client().Usage(ctx, "door", "")).To(HaveField("Runs", int64(1)))
		for e, err := range e.client().Lifecycle(ctx, "door", runtimeclient.LifecycleOptions{NoFollow: true}) {
			Expect(err).NotTo(HaveOccurred())
			Expect(e.ThreadID).To(Equal("two"))
		}
	})

	It("has none of the key-values of the earlier one", func(ctx SpecContext) {
		kv := e.client().KV("door", "s")
		Expect(kv.Set(ctx, "early", 1, 0)).To(MatchError(ContainSubstring(`namespace "door" does not exist: create it first`)))
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
