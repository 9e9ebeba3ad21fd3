package apiserver

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/thread"
)

// remaining are objects of which none is deleted.
type remaining struct {
	family.Objects
	because error
}

func (r remaining) RemoveRefused(context.Context, *skeinv1.Thread) error { return r.because }

// away is an API server that cannot be reached.
type away struct{ client.Reader }

func (away) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server is away")
}

var _ = Describe("A Thread that is deleted before a request finds its thread", Label("THR-10", "REL-02"), func() {
	// object makes a Thread whose conversation is not stored. It goes in two steps if it has a finalizer.
	object := func(ctx context.Context, e *testEnv, finalizers ...string) *skeinv1.Thread {
		GinkgoHelper()
		t := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fd", UID: types.UID(uuid.NewString()), Finalizers: finalizers}}
		Expect(e.kube.Create(ctx, t)).To(Succeed())
		return t
	}
	// deletes returns a change of a server: what it reads first of the Thread is from before its deletion.
	deletes := func(e **testEnv) func(*Options) {
		return func(o *Options) {
			var once sync.Once
			o.Reader = meanwhile{o.Reader, "fd", func(ctx context.Context, t *skeinv1.Thread) {
				defer GinkgoRecover()
				once.Do(func() { Expect((*e).kube.Delete(ctx, t.DeepCopy())).To(Succeed()) })
			}}
		}
	}
	beingDeleted := And(HaveField("Reason", metav1.StatusReasonConflict), HaveField("Message", ContainSubstring(`thread "fd" is being deleted`)))

	DescribeTable("is said to be being deleted, or not found once it is gone", func(ctx SpecContext, path, body string) {
		e := newEnv()
		Expect(e.kube.Delete(ctx, object(ctx, e, "skein.dev/test"))).To(Succeed())
		Expect(e.status(http.MethodPost, at("fd", path), body)).To(beingDeleted)

		By("its deletion while the request waits for its thread")
		e = newEnv(deletes(&e))
		object(ctx, e, "skein.dev/test")
		Expect(e.status(http.MethodPost, at("fd", path), body)).To(beingDeleted)

		By("its end while the request waits for its thread")
		e = newEnv(deletes(&e))
		object(ctx, e)
		Expect(e.status(http.MethodPost, at("fd", path), body)).To(HaveField("Reason", metav1.StatusReasonNotFound))
	},
		Entry("by the answer to a message", "/queue", `{"content":"hello"}`),
		Entry("by the answer to a fork", "/fork", `{}`),
	)

	DescribeTable("leaves a fork that cannot be made, and whose object stays", func(ctx SpecContext, change func(*Options)) {
		e := newEnv(change)
		st, c := e.thread("origin")
		_, err := st.Inject(ctx, thread.NewMessage{Content: ptr.To("hello")})
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "fd", AgentID: "late"}) // its origin has gone by then
		Expect(err).To(And(Satisfy(apierrors.IsConflict), MatchError(ContainSubstring(`Thread "fd" was created and cannot become a fork: it has been removed`))))
		_, err = c.Fork(ctx, runtimev1.NewFork{Name: "beyond", AgentID: "full"})
		Expect(err).To(And(Satisfy(apierrors.IsTimeout), MatchError(ContainSubstring(`Thread "beyond" was created and the fork is not stored yet: it will be`))), "there may be room later")
	},
		Entry("because it changes again and again", func(o *Options) {
			o.Objects = remaining{o.Objects, apierrors.NewConflict(skeinv1.GroupVersion.WithResource("threads").GroupResource(), "fd", errors.New("it has changed"))}
		}),
		Entry("because it cannot be deleted", func(o *Options) { o.Objects = remaining{o.Objects, errors.New("the API server is away")} }),
		Entry("because it cannot be read", func(o *Options) { o.LiveReader = away{o.Reader} }),
	)
})
