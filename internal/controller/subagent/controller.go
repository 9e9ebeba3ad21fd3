// Package subagent reconciles Subagents (SUB-01, SUB-08). Each is a child of a thread. The parent Thread owns it, and
// it owns the child Thread, so that deleting any of them deletes everything below.
package subagent

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/notifications"
	"github.com/skein-dev/skein/internal/controller/statuslimit"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// +kubebuilder:rbac:groups=skein.dev,resources=subagents,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=skein.dev,resources=subagents/status,verbs=patch
// +kubebuilder:rbac:groups=skein.dev,resources=subagents/finalizers,verbs=update
// +kubebuilder:rbac:groups=skein.dev,resources=threads,verbs=get;list;watch;create;patch

// Engine is the part of the engine that the controller needs.
type Engine interface {
	Terminate(ctx context.Context, threadID, reason string) error
}

// Store is the part of the store that the controller needs.
type Store interface {
	notifications.Subscriber
	Thread(ctx context.Context, id string) (*store.Thread, error)
	Run(ctx context.Context, threadID, runID string) (*store.Run, error)
	Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error
	ChildTask(ctx context.Context, id string) (t *store.ChildTask, digest string, err error)
	ReleaseChild(ctx context.Context, parentID, reference string) error
	MarkedDeleted(ctx context.Context, uid string) (bool, error)
}

// Options are the options of the controller.
type Options struct {
	// Client reads its own writes from the cache.
	Client client.Client
	// Live reads from the API server, because the cache may not know yet that a parent is being deleted.
	Live   client.Reader
	Store  Store
	Engine Engine
	// Recorder records Events. It may be nil.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Workers  int
}

// Reconciler reconciles Subagents.
type Reconciler struct {
	Options
	notifications *notifications.Source
	statusLimit   *statuslimit.Limiter
}

// New returns a reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, notifications: notifications.NewSource(o.Store, store.ChangedThread), statusLimit: statuslimit.New()}
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	subagents := func() client.ObjectList { return &skeinv1.SubagentList{} }
	err := ctrl.NewControllerManagedBy(mgr).
		Named("subagent").
		For(&skeinv1.Subagent{}, builder.WithPredicates(predicate.Or(watches.SpecChanged(mgr.GetClient()), ownersChanged(), watches.RestoreEnded()))).
		Owns(&skeinv1.Thread{}, builder.WithPredicates(childTurned())).
		Watches(&skeinv1.Thread{}, watches.ByIndex(mgr.GetCache(), subagents, objects.IndexThread), builder.WithPredicates(threadTurned())).
		Watches(&skeinv1.Thread{}, watches.ByIndex(mgr.GetCache(), subagents, objects.IndexAdopted), builder.WithPredicates(threadTurned())).
		WatchesRawSource(r.notifications).
		WithOptions(watches.Options(r.Workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the subagent controller: %w", err)
	}
	return nil
}

// scope holds what the phases of one reconcile share.
type scope struct {
	req       ctrl.Request
	object    *skeinv1.Subagent
	parent    *skeinv1.Thread // nil until found
	parentRow *store.Thread   // nil until stored
	child     *skeinv1.Thread // nil until it exists
	childless bool            // the child Thread was deleted, or will never be created
	row       *store.Thread   // of the child; nil until it is stored
	run       *store.Run      // the newest of the child; nil before the first
	problem   *problem        // what keeps the Subagent from being Ready
	refused   string          // why the child Thread cannot be created; "" while it can
	leaves    bool            // the child is being deleted, and its status says nothing new until it is gone
}

type problem struct{ reason, message string }

// phase is one step of a reconcile. When a phase sets a problem in the scope, the later ones are skipped.
type phase func(ctx context.Context, s *scope) error

// Reconcile creates, observes and ends the child Thread of a Subagent.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Notifications of later changes cause another reconcile.
	r.notifications.Begin(req)
	s := &scope{req: req, object: &skeinv1.Subagent{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		r.statusLimit.Forget(req)
		r.notifications.Forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.object.DeletionTimestamp.IsZero() || watches.IsRestoring(s.object) {
		return ctrl.Result{}, nil // the child Thread is deleted through its owner reference, or a restore is about to make it
	}
	var failed error
	for _, step := range []phase{
		r.checkDecoded, // do not act on a spec that could not be decoded
		r.findParent,   // a Subagent needs its parent Thread,
		r.ensureOwner,  // and is deleted with it
		r.reportLost,   // tell the parent of a child that was refused
		r.makeChild,    // create the child Thread, once
		r.endChild,     // terminate it with its parent
		r.observe,      // read how far it has come
	} {
		if failed = step(ctx, s); failed != nil || s.problem != nil {
			break
		}
	}
	if failed == nil && s.leaves {
		return ctrl.Result{}, nil
	}
	if failed == nil && s.isExpired(r.Clock.Now()) {
		if _, failed = r.expire(ctx, s); failed == nil {
			return ctrl.Result{}, nil // what is removed says nothing new
		}
	}
	if apierrors.IsConflict(failed) && !kube.IsDenied(failed) {
		return watches.Outcome(ctrl.Result{}, failed) // a concurrent write of the object: reconcile again, and report nothing
	}
	result, err := r.writeStatus(ctx, s, failed)
	if err == nil && failed == nil && result.RequeueAfter == 0 && s.refused != "" {
		failed = r.reportLost(ctx, s) // the refusal is on record now, so that the child is not created any more
	}
	if err == nil && failed == nil {
		var expiry ctrl.Result
		if expiry, failed = r.expire(ctx, s); expiry.RequeueAfter > 0 && (result.RequeueAfter == 0 || expiry.RequeueAfter < result.RequeueAfter) {
			result = expiry
		}
	}
	return watches.Outcome(result, failed, err)
}

// checkDecoded reports fields that could not be decoded as a problem.
func (r *Reconciler) checkDecoded(_ context.Context, s *scope) error {
	if err := objects.CheckDecoded(s.object); err != nil {
		s.problem = &problem{err.Reason, err.Message}
	}
	return nil
}

// ownersChanged passes updates that may have removed our owner reference.
func ownersChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetOwnerReferences()) > len(e.ObjectNew.GetOwnerReferences())
		},
	}
}
