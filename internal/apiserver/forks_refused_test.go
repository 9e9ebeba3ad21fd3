package apiserver

import (
	"context"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// watched are objects for which something happens once a fork is made.
type watched struct {
	family.Objects
	made func(ctx context.Context)
}

func (w watched) CreateFork(ctx context.Context, origin *store.Thread, t *skeinv1.Thread, cause string) (*skeinv1.Thread, error) {
	made, err := w.Objects.CreateFork(ctx, origin, t, cause)
	w.made(ctx)
	return made, err
}

// meanwhile reads objects. Something happens after each Thread of a name that it has read.
type meanwhile struct {
	client.Reader
	name    string
	happens func(ctx context.Context, t *skeinv1.Thread)
}

func (m meanwhile) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := m.Reader.Get(ctx, key, o, opts...)
	if t, ok := o.(*skeinv1.Thread); ok && err == nil && key.Name == m.name {
		m.happens(ctx, t)
	}
	return err
}

// behind is a cache that does not have some Threads yet.
type behind struct {
	client.Reader
	lacks map[string]bool
}

func (b behind) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if b.lacks[key.Name] {
		return apierrors.NewNotFound(skeinv1.GroupVersion.WithResource("threads").GroupResource(), key.Name)
	}
	return b.Reader.Get(ctx, key, o, opts...)
}

var _ = Describe("A fork for which there is no room", Label("REL-02", "K8S-11"), func() {
	// origin makes the thread to fork.
	origin := func(ctx context.Context, e *testEnv) *thread.State {
		GinkgoHelper()
		st, _ := e.thread("origin")
		_, err := st.Inject(ctx, thread.NewMessage{Content: ptr.To("hello")})
		Expect(err).NotTo(HaveOccurred())
		return st
	}
	object := func(ctx context.Context, e *testEnv, name string) error {
		return e.kube.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, &skeinv1.Thread{})
	}

	It("is not left by a caller who does not wait for the answer", func(ctx SpecContext) {
		caller, leave := context.WithCancel(ctx)
		e := newEnv(func(o *Options) { o.Objects = watched{o.Objects, func(context.Context) { leave() }} })
		origin(ctx, e)
		_, err := e.client().Thread("ns", "origin").Fork(caller, runtimev1.NewFork{Name: "beyond", AgentID: "full"})
		Expect(err).To(MatchError(context.Canceled))
		Eventually(func() error { return object(ctx, e, "beyond") }).Should(Satisfy(apierrors.IsNotFound))
	})

	It("is the answer when room appears before its object is deleted", func(ctx SpecContext) {
		var e *testEnv
		e = newEnv(func(o *Options) {
			o.LiveReader = meanwhile{o.Reader, "late", func(ctx context.Context, t *skeinv1.Thread) { // as the controller does
				defer GinkgoRecover()
				_, _, err := e.svc.Create(ctx, thread.NewThread{
					Thread: store.Thread{ID: string(t.UID), Namespace: "ns", Name: t.Name, Agent: "helper"}, Message: t.Spec.Message,
				})
				Expect(err).NotTo(HaveOccurred())
			}}
		})
		origin(ctx, e)
		fork, err := e.client().Thread("ns", "origin").Fork(ctx, runtimev1.NewFork{Name: "late", AgentID: "full", Message: "go on"})
		Expect(err).NotTo(HaveOccurred())
		Expect(*fork).To(And(HaveField("Name", "late"), HaveField("QueuedCount", int64(1))))
		Expect(object(ctx, e, "late")).To(Succeed())
	})

	It("stays when its object changes before it is deleted", func(ctx SpecContext) {
		var e *testEnv
		e = newEnv(func(o *Options) {
			o.LiveReader = meanwhile{o.Reader, "changed", func(ctx context.Context, t *skeinv1.Thread) {
				defer GinkgoRecover()
				now := t.DeepCopy()
				now.Status.Conditions[0].Status = metav1.ConditionTrue
				Expect(e.kube.Status().Update(ctx, now)).To(Succeed())
			}}
		})
		origin(ctx, e)
		_, err := e.client().Thread("ns", "origin").Fork(ctx, runtimev1.NewFork{Name: "changed", AgentID: "full"})
		Expect(err).To(And(Satisfy(apierrors.IsTimeout), MatchError(ContainSubstring(`Thread "changed" was created`))))
		Expect(object(ctx, e, "changed")).To(Succeed())
	})
})

var _ = Describe("A fork whose name looks like an id", Label("REL-02"), func() {
	It("is itself, and not deleted, while the cache does not have its object yet", func(ctx SpecContext) {
		lacks := map[string]bool{}
		e := newEnv(func(o *Options) { o.LiveReader, o.Reader = o.Reader, behind{o.Reader, lacks} })
		st, c := e.thread("origin")
		_, err := st.Inject(ctx, thread.NewMessage{Content: ptr.To("hello")})
		Expect(err).NotTo(HaveOccurred())
		other, _ := e.thread("other")
		for _, name := range []string{uuid.NewString(), other.ID()} {
			lacks[name] = true
			_, err := c.Fork(ctx, runtimev1.NewFork{Name: name, AgentID: "slow"})
			Expect(err).To(And(Satisfy(apierrors.IsTimeout), MatchError(ContainSubstring("was created and the fork is not stored yet"))), name)
		}
		stored := uuid.NewString()
		lacks[stored] = true
		Expect(c.Fork(ctx, runtimev1.NewFork{Name: stored})).To(HaveField("Name", stored))
		Expect(c.Fork(ctx, runtimev1.NewFork{Name: uuid.NewString(), AgentID: "full"})).Error().To(Satisfy(apierrors.IsForbidden))
	})
})
