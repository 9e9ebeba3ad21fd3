// Package thread reconciles Threads: it makes the stored thread, shows a small picture of it in the status
// and purges it when the object goes (THR-03, SUB-08, K8S-07). The conversation itself is the engine's.
package thread

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/hints"
	"github.com/skein-dev/skein/internal/controller/pace"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// +kubebuilder:rbac:groups=skein.dev,resources=threads,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=skein.dev,resources=threads/status,verbs=patch
// +kubebuilder:rbac:groups=skein.dev,resources=threads/finalizers,verbs=update
// +kubebuilder:rbac:groups=skein.dev,resources=subagents,verbs=get;list;watch;delete

// Engine is what the controller needs of the engine.
type Engine interface {
	Wake(threadID string)
	Abort(ctx context.Context, threadID, reason string)
	Terminate(ctx context.Context, threadID, reason string) error
	// ThreadCreated gives what the inbox of a new thread begins with: the hooks that are to be told of it (HOK-01).
	ThreadCreated(ctx context.Context, namespace, agent string) []store.InboxItem
}

// Sandboxes is told of threads that are gone.
type Sandboxes interface {
	Forget(threadID string)
}

// Env follows what the specs of Threads and definitions say of variables.
type Env interface {
	ThreadEnv(ctx context.Context, t *skeinv1.Thread) ([]thread.SpecEnv, error)
	ScopedEnv(ctx context.Context, namespace, agent string) ([]string, error)
}

// Options of the controller.
type Options struct {
	// Client reads its own writes from the cache.
	Client client.Client
	// Live reads from the API server: the cache may not know yet that a child was orphaned.
	Live      client.Reader
	Threads   *thread.Service
	Engine    Engine
	Sandboxes Sandboxes
	Env       Env // nil: no variables
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	Workers   int
}

// Reconciler reconciles Threads.
type Reconciler struct {
	Options
	hints *hints.Source
	pace  *pace.Pacer
}

// New makes a reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{
		Options: o,
		hints:   hints.NewSource(o.Threads.Store(), store.ChangedThread),
		pace:    pace.New(),
	}
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	threads := func() client.ObjectList { return &skeinv1.ThreadList{} }
	err := ctrl.NewControllerManagedBy(mgr).
		Named("thread").
		For(&skeinv1.Thread{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, finalizersChanged()))).
		Watches(&skeinv1.Agent{}, watches.ByIndex(mgr.GetCache(), threads, kube.IndexAgent), builder.WithPredicates(predicate.Or(watches.ReadyTurned(), agentChanged()))).
		Watches(&skeinv1.Prompt{}, handler.EnqueueRequestsFromMapFunc(threadsOfPrompt(mgr.GetCache())), builder.WithPredicates(requiredSchemaChanged())).
		Watches(kube.MetadataOf("Secret"), watches.ByIndex(mgr.GetCache(), threads, kube.IndexSecret), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(kube.MetadataOf("ConfigMap"), watches.ByIndex(mgr.GetCache(), threads, kube.IndexConfigMap), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&skeinv1.Subagent{}, handler.EnqueueRequestsFromMapFunc(parentOf), builder.WithPredicates(entryChanged())).
		WatchesRawSource(r.hints).
		WithOptions(watches.Options(r.Workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the thread controller: %w", err)
	}
	return nil
}

// scope is what the phases of one reconcile share.
type scope struct {
	req    ctrl.Request
	object *skeinv1.Thread
	row    *store.Thread // nil until the stored thread is there
	parent string        // name of the parent Thread; "" for a root
	// agentSpec is of the thread's agent; nil when it is not there. It belongs to the cache.
	agentSpec *skeinv1.AgentSpec
	// problem keeps the thread from being Ready; nil when there is none.
	problem *problem
	// again is when a thread that waits for its children looks at them without having been told to; 0 for not.
	again time.Duration
}

// problem is a reason and a message of Ready.
type problem struct{ reason, message string }

// phase is one step of a reconcile. done ends it before the next phase.
type phase func(ctx context.Context, s *scope) (done bool, err error)

// Reconcile brings one Thread and its stored thread together.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Hints of changes after this line lead to another reconcile.
	r.hints.Begin(req)
	s := &scope{req: req, object: &skeinv1.Thread{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		r.pace.Forget(req)
		r.hints.Forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var failed error
	for _, step := range []phase{
		r.delete,    // ends everything when the object is on its way out
		r.finalizer, // nothing is stored before the object is held until a purge
		r.decoded,   // a spec that is not understood is not acted upon
		r.store,     // makes the stored thread, adopts it, or keeps it up with the spec
		r.handOver,  // and with the agent that the spec names
		r.env,       // keeps its variables up with the spec
		r.agent,     // finds out whether it can be served
		r.expiry,    // and after how long it expires
	} {
		done, err := step(ctx, s)
		if done && err == nil {
			return ctrl.Result{RequeueAfter: s.again}, nil
		}
		if failed = err; err != nil {
			break
		}
	}
	if !s.object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, failed
	}
	if apierrors.IsConflict(failed) {
		return ctrl.Result{}, failed // somebody wrote the object at the same time: look at it again, and say nothing
	}
	// The one place where status is written, whatever the phases came to.
	result, err := r.writeStatus(ctx, s, failed)
	return result, errors.Join(failed, err)
}

// parentOf maps a Subagent to its parent, whose status mirrors it.
func parentOf(_ context.Context, o client.Object) []ctrl.Request {
	s, ok := o.(*skeinv1.Subagent)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.ParentRef.Name}}}
}

// entryChanged passes what changes the mirror of a Subagent.
func entryChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*skeinv1.Subagent)
		after, ok2 := e.ObjectNew.(*skeinv1.Subagent)
		return ok1 && ok2 && (kube.Entry(before) != kube.Entry(after) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
	}}
}

// finalizersChanged passes updates that somebody may have taken our finalizer away by.
func finalizersChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetFinalizers()) > len(e.ObjectNew.GetFinalizers()) ||
				e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}
