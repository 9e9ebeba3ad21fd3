package subagent_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/subagent"
	"github.com/skein-dev/skein/internal/store"
)

func TestSubagent(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "subagent controller")
}

// newController returns a reconciler of Subagents, and the Thread parent, which is not created yet.
func newController(ctx context.Context) (*Env, *subagent.Reconciler, *skeinv1.Thread) {
	e := New(ctx)
	return e, newReconciler(e), newParent()
}

// newReconciler returns a reconciler of the Subagents of e.
func newReconciler(e *Env, edit ...func(*subagent.Options)) *subagent.Reconciler {
	o := subagent.Options{Client: e.Client, Live: e.Client, Store: e.Store, Engine: e.Engine, Clock: e.Clock}
	for _, f := range edit {
		f(&o)
	}
	return subagent.New(o)
}

// newParent returns the Thread parent, which is not created yet.
func newParent() *skeinv1.Thread {
	return &skeinv1.Thread{ObjectMeta: Meta("parent"), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
}

// createThread creates a Thread and stores its thread.
func createThread(ctx context.Context, e *Env, t *skeinv1.Thread) {
	GinkgoHelper()
	e.Create(ctx, t)
	storeThread(ctx, e, t)
}

// removeThread removes a Thread together with its finalizer.
func removeThread(ctx context.Context, e *Env, t *skeinv1.Thread) {
	GinkgoHelper()
	t.Finalizers = nil
	Expect(e.Client.Update(ctx, t)).To(Succeed())
	Expect(e.Client.Delete(ctx, t)).To(Succeed())
}

// refuseThreads makes the cluster refuse new Threads, because a quota is used up.
func refuseThreads(e *Env, name string) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, name, errors.New("exceeded quota: few"))
	e.Fail(func(verb string, o client.Object) error {
		if _, ok := o.(*skeinv1.Thread); ok && verb == "create" {
			return quota
		}
		return nil
	})
}

// storeThread stores the thread of a Thread, as its controller does.
func storeThread(ctx context.Context, e *Env, t *skeinv1.Thread, edit ...func(*store.Thread)) {
	GinkgoHelper()
	row := store.Thread{ID: string(t.UID), Namespace: t.Namespace, Name: t.Name, Agent: "a", UserID: "ada"}
	for _, f := range edit {
		f(&row)
	}
	_, _, err := e.Store.CreateThread(ctx, row)
	Expect(err).NotTo(HaveOccurred())
}

// declareSubagent creates the Subagent s of the Thread parent.
func declareSubagent(ctx context.Context, e *Env, edit ...func(*skeinv1.Subagent)) *skeinv1.Subagent {
	GinkgoHelper()
	s := &skeinv1.Subagent{ObjectMeta: Meta("s"), Spec: skeinv1.SubagentSpec{
		ParentRef: skeinv1.LocalRef{Name: "parent"}, AgentRef: skeinv1.LocalRef{Name: "worker"}, Name: "helper", Title: "Sum", Description: "adds",
		Message: "2+3", Blocking: true, ParentCommunication: skeinv1.CommunicationImplicit, SpawnGroupID: "sess_1",
		Arguments: &runtime.RawExtension{Raw: []byte(`{"n":1}`)}}}
	for _, f := range edit {
		f(s)
	}
	e.Create(ctx, s)
	return s
}

// childThread returns the Thread that the controller has made for a Subagent.
func childThread(ctx context.Context, e *Env, s *skeinv1.Subagent) *skeinv1.Thread {
	GinkgoHelper()
	return Get(ctx, e, &skeinv1.Thread{ObjectMeta: Meta(s.Name)})
}

// declareChild creates the Subagent s of the Thread parent, and has the controller make its Thread.
func declareChild(ctx context.Context, e *Env, r *subagent.Reconciler) (*skeinv1.Subagent, *skeinv1.Thread) {
	GinkgoHelper()
	s := declareSubagent(ctx, e)
	Reconcile(ctx, r, s)
	return s, childThread(ctx, e, s)
}

// ready returns the Ready condition of a Subagent.
func ready(s *skeinv1.Subagent) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionReady)
}

// childRow makes a stored thread the child of a parent.
func childRow(parent *skeinv1.Thread, s *skeinv1.Subagent) func(*store.Thread) {
	return func(t *store.Thread) {
		t.ParentID, t.Reference, t.RegistryStatus, t.Child = string(parent.UID), s.Name, "pending", &store.Child{Name: "helper", Blocking: true}
	}
}

// byRun makes a Subagent one that a run of the parent created.
func byRun(s *skeinv1.Subagent) { s.Spec.ToolCallID = "call_1" }

// going is a reader that returns objects as being deleted.
type going struct{ client.Reader }

func (g going) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := g.Reader.Get(ctx, key, o, opts...)
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	return err
}

// behind is a client whose cache does not have the Thread of a name yet.
type behind struct {
	client.Client
	name string
}

func (b behind) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*skeinv1.Thread); ok && key.Name == b.name {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "threads"}, b.name)
	}
	return b.Client.Get(ctx, key, o, opts...)
}
