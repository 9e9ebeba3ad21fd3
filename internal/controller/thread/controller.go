// Package thread reconciles Threads (THR-03, SUB-08, K8S-07): it creates the stored thread, summarises it in the
// status, and purges it when the object is deleted. The engine runs the conversation itself.
package thread

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/notifications"
	"github.com/skein-dev/skein/internal/controller/statuslimit"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// +kubebuilder:rbac:groups=skein.dev,resources=threads,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=skein.dev,resources=threads/status,verbs=patch
// +kubebuilder:rbac:groups=skein.dev,resources=threads/finalizers,verbs=update
// +kubebuilder:rbac:groups=skein.dev,resources=subagents,verbs=get;list;watch;delete

// Engine is the part of the engine that the controller needs.
type Engine interface {
	Wake(threadID string)
	// WakeRefused wakes a thread that could not run when it was tried last.
	WakeRefused(threadID string)
	Abort(ctx context.Context, threadID, reason string)
	Terminate(ctx context.Context, threadID, reason string) error
	// OpenReplies returns the calls of a child's parent that wait for the child. An empty id stands for a message.
	OpenReplies(ctx context.Context, child *store.Thread) ([]string, error)
	// AnswerForLost answers the calls of a waiting run that wait for children which do not exist.
	AnswerForLost(ctx context.Context, t *store.Thread, run *store.Run) error
	// ThreadCreated returns the first inbox items of a new thread: the hooks to call for its creation (HOK-01).
	ThreadCreated(ctx context.Context, namespace, agent string) []store.InboxItem
}

// Sandboxes is notified of deleted threads.
type Sandboxes interface {
	Forget(threadID string)
}

// Options are the options of the controller.
type Options struct {
	// Client reads its own writes from the cache.
	Client client.Client
	// Live reads from the API server, because the cache may not know yet that a child was orphaned.
	Live      client.Reader
	Threads   *thread.Service
	Engine    Engine
	Sandboxes Sandboxes
	Env       *definitions.Variables // nil means no variables
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	Workers   int
}

// Reconciler reconciles Threads.
type Reconciler struct {
	Options
	notifications *notifications.Source
	statusLimit   *statuslimit.Limiter
	childEnds     *statuslimit.Budget
	lost          lostCalls
	released      *lru.Cache // of UIDs
	foreground    *foreground
	families      families
	childWaits    childWaits
	lostChildren  lostChildren
	namespaces    *objects.Namespaces
}

// New returns a reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{
		Options:       o,
		notifications: notifications.NewSource(o.Threads.Store(), store.ChangedThread),
		statusLimit:   statuslimit.New(),
		childEnds:     statuslimit.NewBudget(),
		released:      lru.New(maxReleased),
		foreground:    newForeground(),
		namespaces:    objects.NewNamespaces(o.Live),
	}
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	threads := func() client.ObjectList { return &skeinv1.ThreadList{} }
	r.families.watch()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("thread").
		For(&skeinv1.Thread{}, builder.WithPredicates(r.foreground.seen(), predicate.Or(watches.SpecChanged(mgr.GetClient()), finalizersChanged(), watches.RestoreEnded()))).
		Watches(&skeinv1.Thread{}, r.foreground.ends()).
		Watches(&skeinv1.Subagent{}, r.foreground.ends()).
		Watches(&skeinv1.Agent{}, r.agentReady(mgr.GetCache())).
		Watches(&skeinv1.Agent{}, watches.Dependents(watches.ByIndex(mgr.GetCache(), threads, objects.IndexAgent)), builder.WithPredicates(predicate.Or(watches.ReadyTurned(), agentChanged()))).
		Watches(&skeinv1.Prompt{}, watches.Dependents(handler.EnqueueRequestsFromMapFunc(threadsOfPrompt(mgr.GetCache()))), builder.WithPredicates(requiredSchemaChanged())).
		Watches(objects.MetadataOf("Secret"), watches.ByIndex(mgr.GetCache(), threads, objects.IndexSecret), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(objects.MetadataOf("ConfigMap"), watches.ByIndex(mgr.GetCache(), threads, objects.IndexConfigMap), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&skeinv1.Thread{}, handler.EnqueueRequestsFromMapFunc(waitingForks(mgr.GetCache())), builder.WithPredicates(mayBeForked())).
		Watches(&skeinv1.Subagent{}, parents(), builder.WithPredicates(r.entryChanged())).
		Watches(&skeinv1.Subagent{}, handler.EnqueueRequestsFromMapFunc(childOf), builder.WithPredicates(ownerChanged())).
		WatchesRawSource(r.notifications).
		WithOptions(watches.Options(r.Workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the thread controller: %w", err)
	}
	return nil
}

// scope holds what the phases of one reconcile share.
type scope struct {
	req    ctrl.Request
	object *skeinv1.Thread
	row    *store.Thread // nil until the stored thread exists
	parent string        // name of the parent Thread; "" for a root
	// agentSpec is the spec of the thread's agent, or nil when the agent does not exist. It belongs to the cache.
	agentSpec *skeinv1.AgentSpec
	// problem is what keeps the thread from being Ready, or nil.
	problem *problem
	// refused is the new thread that cannot be created although a run of its parent asked for it, or nil.
	refused *thread.NewThread
	// why is why it cannot be created, as its parent is told; "" when that is to be found out again.
	why string
	// again is when a thread that waits for its children checks them without a notification. 0 means never.
	again time.Duration
	// retry is when a thread is tried again that found no room in a quota, or needs a Secret that the manager may not read. 0 means
	// never.
	retry time.Duration
}

// problem is a reason and a message for the Ready condition.
type problem struct{ reason, message string }

// phase is one step of a reconcile. When done is true, the later phases are skipped.
type phase func(ctx context.Context, s *scope) (done bool, err error)

// Reconcile creates, updates and ends the stored thread of one Thread.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Notifications of later changes cause another reconcile.
	r.notifications.Begin(req)
	s := &scope{req: req, object: &skeinv1.Thread{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		r.statusLimit.Forget(req)
		r.notifications.Forget(req)
		r.families.forget(req)
		r.childWaits.forget(req)
		r.lostChildren.forget(req)
		r.lost.uncheck(req) // for another Thread of this name
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var failed error
	for _, step := range []phase{
		r.delete,          // end everything when the object is being deleted
		r.ensureFinalizer, // store nothing before the finalizer holds the object until a purge
		r.waitForRestore,  // wait until a restore has made the other objects
		r.checkDecoded,    // do not act on a spec that could not be decoded
		r.store,           // create or adopt the stored thread, or update it to the spec
		r.handOver,        // hand over to the agent that the spec names
		r.updateEnv,       // update its variables to the spec
		r.checkAgent,      // check whether its agent can run it
		r.setExpiry,       // set after how long it expires
	} {
		done, err := step(ctx, s)
		if done && err == nil {
			return ctrl.Result{RequeueAfter: s.again, Priority: ptr.To(watches.NormalPriority)}, nil
		}
		if failed = err; err != nil {
			break
		}
	}
	if !s.object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, failed
	}
	if errors.Is(failed, store.ErrObjectDeleted) {
		// The copy of the object is old: its deletion, once it is seen here too, reconciles again. A refusal that comes to nothing, because the
		// object could not be deleted, ends after a minute. Or its parent is being deleted, and deletes it too unless that cannot be done.
		return ctrl.Result{RequeueAfter: time.Minute}, nil
	}
	if apierrors.IsConflict(failed) {
		return watches.Outcome(ctrl.Result{}, failed) // a concurrent write of the object: reconcile again, and report nothing
	}
	// Only this place writes the status, whatever the result of the phases.
	result, err := r.writeStatus(ctx, s, failed)
	if s.retry != 0 && (result.RequeueAfter == 0 || s.retry < result.RequeueAfter) {
		result.RequeueAfter, result.Priority = s.retry, ptr.To(watches.NormalPriority)
	}
	if err == nil && failed == nil && result.RequeueAfter == 0 {
		failed = r.refuse(ctx, s)
	}
	return watches.Outcome(result, failed, err)
}

// childOf maps a Subagent to its child, which may wait for a parent.
func childOf(_ context.Context, o client.Object) []ctrl.Request {
	s, ok := o.(*skeinv1.Subagent)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: kube.ChildThreadName(s)}}}
}

// ownerChanged passes updates that give a Subagent a parent, or take it away.
func ownerChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return (metav1.GetControllerOf(e.ObjectOld) == nil) != (metav1.GetControllerOf(e.ObjectNew) == nil)
		},
	}
}

// finalizersChanged passes updates that may have removed our finalizer, or that of the garbage collector.
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
