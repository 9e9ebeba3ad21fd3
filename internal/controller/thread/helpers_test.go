package thread_test

import (
	"context"
	"encoding/json"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

func TestThread(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "thread controller")
}

// forgotten records the threads whose sandboxes were dropped.
type forgotten []string

func (f *forgotten) Forget(id string) { *f = append(*f, id) }

// aborts records whether the data of a thread was retained when its run was aborted.
type aborts struct {
	thread.Engine
	retained func(id string) bool
	seen     []bool
}

func (a *aborts) Abort(ctx context.Context, id, reason string) {
	a.seen = append(a.seen, a.retained(id))
	a.Engine.Abort(ctx, id, reason)
}

// newController returns a reconciler of Threads, and what it has told of sandboxes.
func newController(ctx context.Context) (*Env, *thread.Reconciler, *forgotten) {
	e, sandboxes := New(ctx), &forgotten{}
	return e, newReconciler(e, func(o *thread.Options) { o.Sandboxes = sandboxes }), sandboxes
}

// newReconciler returns a reconciler of the Threads of e.
func newReconciler(e *Env, edit ...func(*thread.Options)) *thread.Reconciler {
	o := thread.Options{Client: e.Client, Live: e.Client, Threads: e.Threads, Engine: e.Engine, Sandboxes: &forgotten{}, Recorder: e.Recorder, Clock: e.Clock}
	for _, f := range edit {
		f(&o)
	}
	return thread.New(o)
}

// newThread creates a Thread of the agent a.
func newThread(ctx context.Context, e *Env, name string, edit ...func(*skeinv1.Thread)) *skeinv1.Thread {
	GinkgoHelper()
	t := &skeinv1.Thread{ObjectMeta: Meta(name), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
	for _, f := range edit {
		f(t)
	}
	e.Create(ctx, t)
	return t
}

// ready returns the Ready condition of a Thread.
func ready(t *skeinv1.Thread) *metav1.Condition {
	return meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionReady)
}

// putRun stores a run of a Thread.
func putRun(ctx context.Context, e *Env, t *skeinv1.Thread, run store.Run) {
	GinkgoHelper()
	run.ThreadID = string(t.UID)
	Expect(e.Store.Apply(ctx, run.ThreadID, nil, &store.PutRun{Run: run})).To(Succeed())
}

// newSubagent creates a Subagent that a parent thread owns.
func newSubagent(ctx context.Context, e *Env, parent *skeinv1.Thread, name string, edit ...func(*skeinv1.Subagent)) *skeinv1.Subagent {
	GinkgoHelper()
	s := &skeinv1.Subagent{ObjectMeta: Meta(name), Spec: skeinv1.SubagentSpec{
		ParentRef: skeinv1.LocalRef{Name: parent.Name}, AgentRef: skeinv1.LocalRef{Name: "a"}, Name: "helper"}}
	s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(parent.Name, string(parent.UID))}
	for _, f := range edit {
		f(s)
	}
	e.Create(ctx, s)
	return s
}

// blocking makes a Subagent one for which a call of its parent waits.
func blocking(s *skeinv1.Subagent) { s.Spec.Blocking, s.Spec.ToolCallID = true, "call_1" }

// newOwned creates the Thread that a Subagent owns, with its finalizer.
func newOwned(ctx context.Context, e *Env, s *skeinv1.Subagent, message string) *skeinv1.Thread {
	GinkgoHelper()
	return newThread(ctx, e, s.Name, func(t *skeinv1.Thread) {
		t.Finalizers = []string{skeinv1.Finalizer}
		t.Spec.Message = message
		t.OwnerReferences = []metav1.OwnerReference{{APIVersion: skeinv1.GroupVersion.String(), Kind: "Subagent", Name: s.Name, UID: s.UID, Controller: ptr.To(true)}}
	})
}

// newChild creates a Subagent of a parent thread, for which a call waits, and the Thread that it owns.
func newChild(ctx context.Context, e *Env, parent *skeinv1.Thread, edit ...func(*skeinv1.Subagent)) (*skeinv1.Subagent, *skeinv1.Thread) {
	GinkgoHelper()
	implicit := func(s *skeinv1.Subagent) {
		s.Spec.ParentCommunication, s.Spec.Message = skeinv1.CommunicationImplicit, "do"
	}
	s := newSubagent(ctx, e, parent, "s", append([]func(*skeinv1.Subagent){blocking, implicit}, edit...)...)
	return s, newOwned(ctx, e, s, s.Spec.Message)
}

// childResults returns what waits for a parent of the ends of its children.
func childResults(ctx context.Context, e *Env, parent *skeinv1.Thread) []store.ChildResult {
	GinkgoHelper()
	items, err := e.Store.Inbox(ctx, string(parent.UID))
	Expect(err).NotTo(HaveOccurred())
	var out []store.ChildResult
	for _, i := range items {
		if i.Kind == store.InboxChildResult {
			var c store.ChildResult
			Expect(json.Unmarshal(i.Payload, &c)).To(Succeed())
			out = append(out, c)
		}
	}
	return out
}
