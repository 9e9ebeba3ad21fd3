// Package controllertest is shared by the tests of the controllers. It provides an API server in memory that counts
// writes, a real store, a clock that stands still, and an engine that only records calls. Tests call the reconcilers
// directly, so that they need not wait for anything.
package controllertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"gocloud.dev/blob/memblob"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// Namespace is the namespace of the objects that the helpers create.
const Namespace = "demo"

// Start is the initial time of the clock.
var Start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Env is the environment of a reconciler.
type Env struct {
	Client   client.WithWatch
	Store    store.Store
	Threads  *thread.Service
	Clock    *testingclock.FakeClock
	Engine   *Engine
	Recorder *events.FakeRecorder

	mu     sync.Mutex
	uids   int
	writes map[string]int
	fail   func(verb string, o client.Object) error
}

// New returns an empty environment that ends with the spec.
func New(ctx context.Context) *Env {
	ginkgo.GinkgoHelper()
	e := &Env{
		Clock:    testingclock.NewFakeClock(Start),
		Engine:   &Engine{},
		Recorder: events.NewFakeRecorder(1000),
		writes:   map[string]int{},
	}
	st, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(ginkgo.GinkgoT()), Clock: e.Clock})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	e.Store = st
	e.Engine.store = st
	ginkgo.DeferCleanup(st.Close)
	bucket := memblob.OpenBucket(nil)
	ginkgo.DeferCleanup(bucket.Close)
	e.Threads = thread.NewService(thread.Options{Store: st, Blobs: bucket, Clock: e.Clock})
	b := fake.NewClientBuilder().WithScheme(Scheme()).WithStatusSubresource(
		&skeinv1.Agent{}, &skeinv1.Prompt{}, &skeinv1.Model{}, &skeinv1.Tool{}, &skeinv1.Effect{}, &skeinv1.ThreadEndpoint{}, &skeinv1.ThreadGateway{}, &skeinv1.ThreadQuota{}, &skeinv1.Webhook{}, &skeinv1.WebhookReceiver{},
		&skeinv1.Thread{}, &skeinv1.Subagent{}, &skeinv1.ScheduledEffect{}, &skeinv1.SandboxPool{}, &corev1.Pod{},
	).WithInterceptorFuncs(e.interceptor())
	for _, i := range objects.Indexes() {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	e.Client = b.Build()
	return e
}

// Scheme returns the scheme of the client.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, skeinv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// interceptor counts writes and sets on new objects what an API server sets.
func (e *Env) interceptor() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := e.note("create", o); err != nil {
				return err
			}
			e.mu.Lock()
			e.uids++
			n := e.uids
			e.mu.Unlock()
			if o.GetUID() == "" {
				o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)))
			}
			if o.GetName() == "" {
				o.SetName(fmt.Sprintf("%s%d", o.GetGenerateName(), n))
			}
			o.SetGeneration(1)
			if made := o.GetCreationTimestamp(); made.IsZero() {
				o.SetCreationTimestamp(metav1.NewTime(e.Clock.Now().Truncate(time.Second)))
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := e.note("update", o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := e.note("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := e.note("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := e.note(sub, o); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

// note counts a write, and returns the error with which the test makes it fail, or nil.
func (e *Env) note(verb string, o client.Object) error {
	e.mu.Lock()
	fail := e.fail
	e.writes[verb+" "+kindOf(o)]++
	e.mu.Unlock()
	if fail != nil {
		return fail(verb, o)
	}
	return nil
}

func kindOf(o client.Object) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// Fail makes writes fail with the errors that f returns. nil ends that.
func (e *Env) Fail(f func(verb string, o client.Object) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = f
}

// Writes returns the writes since the last call, as "verb Kind", and for statuses "status Kind".
func (e *Env) Writes() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.writes
	e.writes = map[string]int{}
	return w
}

// Create creates objects.
func (e *Env) Create(ctx context.Context, objs ...client.Object) {
	ginkgo.GinkgoHelper()
	for _, o := range objs {
		gomega.Expect(e.Client.Create(ctx, o)).To(gomega.Succeed(), "%T %s", o, o.GetName())
	}
}

// Get reads an object again.
func Get[T client.Object](ctx context.Context, e *Env, o T) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(gomega.Succeed())
	return o
}

// Reconcile reconciles an object once and expects no error.
func Reconcile(ctx context.Context, r reconcile.Reconciler, o client.Object) ctrl.Result {
	ginkgo.GinkgoHelper()
	result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return result
}

// SetReady sets the Ready condition of a definition, as its own controller would.
func (e *Env) SetReady(ctx context.Context, o client.Object, list *[]metav1.Condition, status metav1.ConditionStatus, reason, message string) {
	ginkgo.GinkgoHelper()
	*list = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(Start)}}
	gomega.Expect(e.Client.Status().Update(ctx, o)).To(gomega.Succeed())
}

// Meta returns the metadata of an object in Namespace.
func Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name}
}

// ReadyAgent creates an agent that is Ready.
func (e *Env) ReadyAgent(ctx context.Context, name string) *skeinv1.Agent {
	ginkgo.GinkgoHelper()
	a := &skeinv1.Agent{ObjectMeta: Meta(name), Spec: skeinv1.AgentSpec{SideA: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: "p"}}}}
	e.Create(ctx, a)
	e.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	return a
}

// Engine records the calls that it gets.
type Engine struct {
	store store.Store

	mu    sync.Mutex
	Woken []string
	// WokenIfRefused are the threads that WakeRefused was called for.
	WokenIfRefused []string
	Aborted        []string
	Terminated     map[string]string // thread id → reason
	EffectsWoke    int
	// FirstItems is what ThreadCreated returns.
	FirstItems []store.InboxItem
	// Answered are the threads that AnswerForLost was asked about.
	Answered []string
}

// Wake records the thread.
func (e *Engine) Wake(threadID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Woken = append(e.Woken, threadID)
}

// WakeRefused records the thread.
func (e *Engine) WakeRefused(threadID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.WokenIfRefused = append(e.WokenIfRefused, threadID)
}

// WakeEffects counts its calls.
func (e *Engine) WakeEffects() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.EffectsWoke++
}

// Abort records the thread.
func (e *Engine) Abort(_ context.Context, threadID, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Aborted = append(e.Aborted, threadID)
}

// ThreadCreated returns Told.
func (e *Engine) ThreadCreated(context.Context, string, string) []store.InboxItem {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.FirstItems
}

// Terminate terminates the stored thread only.
func (e *Engine) Terminate(ctx context.Context, threadID, reason string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Terminated == nil {
		e.Terminated = map[string]string{}
	}
	e.Terminated[threadID] = reason
	return e.store.Apply(ctx, threadID, nil, &store.Terminate{Reason: reason})
}

// OpenReplies implements the engine's method of this name: the call that created the child waits for it.
func (e *Engine) OpenReplies(_ context.Context, child *store.Thread) ([]string, error) {
	return thread.FirstReplies(child.Child), nil
}

// AnswerForLost implements the engine's method of this name.
func (e *Engine) AnswerForLost(_ context.Context, t *store.Thread, _ *store.Run) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Answered = append(e.Answered, t.ID)
	return nil
}
