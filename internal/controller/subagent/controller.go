// Package subagent reconciles Subagents: each is a child of a thread, owned by the parent Thread and owner
// of the child Thread, so that deleting any of them deletes what is below (SUB-01, SUB-08).
package subagent

import (
	"context"
	"errors"
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
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/hints"
	"github.com/skein-dev/skein/internal/controller/pace"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

// +kubebuilder:rbac:groups=skein.dev,resources=subagents,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=skein.dev,resources=subagents/status,verbs=patch
// +kubebuilder:rbac:groups=skein.dev,resources=subagents/finalizers,verbs=update
// +kubebuilder:rbac:groups=skein.dev,resources=threads,verbs=get;list;watch;create

// Engine is what the controller needs of the engine.
type Engine interface {
	Terminate(ctx context.Context, threadID, reason string) error
}

// Store is what the controller needs of the store.
type Store interface {
	hints.Subscriber
	Thread(ctx context.Context, id string) (*store.Thread, error)
}

// Options of the controller.
type Options struct {
	// Client reads its own writes from the cache.
	Client client.Client
	// Live reads from the API server: the cache may not know yet that a parent is being deleted.
	Live   client.Reader
	Store  Store
	Engine Engine
	// Recorder may be nil: no Events.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Workers  int
}

// Reconciler reconciles Subagents.
type Reconciler struct {
	Options
	hints *hints.Source
	pace  *pace.Pacer
}

// New makes a reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, hints: hints.NewSource(o.Store, store.ChangedThread), pace: pace.New()}
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	subagents := func() client.ObjectList { return &skeinv1.SubagentList{} }
	err := ctrl.NewControllerManagedBy(mgr).
		Named("subagent").
		For(&skeinv1.Subagent{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, ownersChanged()))).
		Owns(&skeinv1.Thread{}, builder.WithPredicates(threadTurned())).
		Watches(&skeinv1.Thread{}, watches.ByIndex(mgr.GetCache(), subagents, kube.IndexThread), builder.WithPredicates(threadTurned())).
		WatchesRawSource(r.hints).
		WithOptions(watches.Options(r.Workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the subagent controller: %w", err)
	}
	return nil
}

// scope is what the phases of one reconcile share.
type scope struct {
	req       ctrl.Request
	object    *skeinv1.Subagent
	parent    *skeinv1.Thread // nil until found
	parentRow *store.Thread   // nil until stored
	child     *skeinv1.Thread // nil until made
	childless bool            // the child Thread was deleted, or will never be made
	row       *store.Thread   // of the child; nil until stored
	problem   *problem        // keeps the Subagent from being Ready
}

type problem struct{ reason, message string }

// phase is one step of a reconcile; a problem set in the scope ends it.
type phase func(ctx context.Context, s *scope) error

// Reconcile brings a Subagent and its child Thread together.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Hints of changes after this line lead to another reconcile.
	r.hints.Begin(req)
	s := &scope{req: req, object: &skeinv1.Subagent{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		r.pace.Forget(req)
		r.hints.Forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the child Thread goes by its owner reference
	}
	var failed error
	for _, step := range []phase{
		r.decoded,    // a spec that is not understood is not acted upon
		r.findParent, // a Subagent belongs to a Thread that is there
		r.own,        // and goes when that one goes
		r.makeChild,  // the child Thread, once
		r.endChild,   // ends with its parent
	} {
		if failed = step(ctx, s); failed != nil || s.problem != nil {
			break
		}
	}
	if apierrors.IsConflict(failed) {
		return ctrl.Result{}, failed // somebody wrote the object at the same time: look at it again, and say nothing
	}
	result, err := r.writeStatus(ctx, s, failed)
	return result, errors.Join(failed, err)
}

// decoded makes a problem of fields that could not be decoded.
func (r *Reconciler) decoded(_ context.Context, s *scope) error {
	if err := kube.CheckDecoded(s.object); err != nil {
		s.problem = &problem{err.Reason, err.Message}
	}
	return nil
}

// threadTurned passes what of a Thread, be it the parent or the child, a Subagent depends on.
func threadTurned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*skeinv1.Thread)
		after, ok2 := e.ObjectNew.(*skeinv1.Thread)
		return ok1 && ok2 && (before.Status.ThreadID != after.Status.ThreadID ||
			before.Status.TerminatedAt != after.Status.TerminatedAt ||
			conditions.ReadyChanged(before.Status.Conditions, after.Status.Conditions))
	}}
}

// ownersChanged passes updates by which somebody may have taken our owner reference away.
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
