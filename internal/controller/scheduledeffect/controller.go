// Package scheduledeffect reconciles ScheduledEffects: it records each firing when it is due, once, and
// shows how the handler ended (EFF-01, EFF-04). The handler itself is the engine's.
package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/hints"
	"github.com/skein-dev/skein/internal/controller/pace"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

// +kubebuilder:rbac:groups=skein.dev,resources=scheduledeffects,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=skein.dev,resources=scheduledeffects/status,verbs=patch

// Engine is what the controller needs of the engine.
type Engine interface {
	WakeEffects()
}

// Store is what the controller needs of the store.
type Store interface {
	hints.Subscriber
	Thread(ctx context.Context, id string) (*store.Thread, error)
	RecordFiring(ctx context.Context, f store.Firing) (recorded bool, err error)
	Firing(ctx context.Context, effectID string, due int64) (*store.Firing, error)
}

// Options of the controller.
type Options struct {
	// Client reads its own writes from the cache.
	Client client.Client
	Store  Store
	Engine Engine
	// Recorder may be nil: no Events.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Workers  int
}

// Reconciler reconciles ScheduledEffects.
type Reconciler struct {
	Options
	hints *hints.Source
	pace  *pace.Pacer
}

// New makes a reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, hints: hints.NewSource(o.Store, store.ChangedFiring), pace: pace.New()}
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	effects := func() client.ObjectList { return &skeinv1.ScheduledEffectList{} }
	err := ctrl.NewControllerManagedBy(mgr).
		Named("scheduledeffect").
		Watches(&skeinv1.ScheduledEffect{}, r.byDueTime(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&skeinv1.Thread{}, watches.ByIndex(mgr.GetCache(), effects, kube.IndexThread), builder.WithPredicates(threadTurned())).
		Watches(&skeinv1.Effect{}, watches.ByIndex(mgr.GetCache(), effects, kube.IndexEffect), builder.WithPredicates(watches.ReadyTurned())).
		WatchesRawSource(r.hints).
		WithOptions(watches.Options(r.Workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the scheduledeffect controller: %w", err)
	}
	return nil
}

// scope is what the phases of one reconcile share.
type scope struct {
	req      ctrl.Request
	object   *skeinv1.ScheduledEffect
	at       time.Time // of this reconcile
	due      time.Time
	thread   *skeinv1.Thread
	row      *store.Thread // of the thread
	firing   *store.Firing // nil until it was recorded
	canceled bool
	problem  *problem      // keeps it from firing
	next     time.Duration // until it must be looked at again; 0 = not by itself
	fires    bool          // at that time it is due
	again    bool          // look at it again as soon as the status is written
	gone     bool          // the object was deleted
}

type problem struct{ reason, message string }

// phase is one step of a reconcile. stop ends it before the next.
type phase func(ctx context.Context, s *scope) (stop bool, err error)

// Reconcile brings a ScheduledEffect to its due time and past it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Hints of changes after this line lead to another reconcile.
	r.hints.Begin(req)
	s := &scope{req: req, object: &skeinv1.ScheduledEffect{}, at: r.Clock.Now()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		r.pace.Forget(req)
		r.hints.Forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	var failed error
	for _, step := range []phase{
		r.expire,     // a finished one goes after its TTL
		r.observe,    // one that has fired is only watched
		r.decoded,    // a spec that is not understood is not acted upon
		r.findThread, // one that has not needs its thread
		r.own,        // and goes with it
		r.cancel,     // and does not outlive its end (EFF-06)
		r.findEffect, // and needs its effect
		r.plan,       // and a due time that a restart does not move
		r.fire,       // at which it is recorded, once (EFF-04)
	} {
		stop, err := step(ctx, s)
		if failed = err; stop || err != nil {
			break
		}
	}
	if s.gone {
		return ctrl.Result{}, failed
	}
	if apierrors.IsConflict(failed) {
		return ctrl.Result{}, failed // somebody wrote the object at the same time: look at it again, and say nothing
	}
	result, err := r.writeStatus(ctx, s, failed)
	result.Priority = ptr.To(restPriority)
	if s.again {
		result.Priority = ptr.To(duePriority)
	}
	if s.fires && result.RequeueAfter == s.next {
		// The status may have taken a while to write, and that time has passed too.
		result.RequeueAfter = max(s.due.Sub(r.Clock.Now()), time.Nanosecond)
		result.Priority = ptr.To(duePriority)
	}
	return result, errors.Join(failed, err)
}

// decoded makes a problem of fields that could not be decoded. Nothing fires by a spec that is not understood.
func (r *Reconciler) decoded(_ context.Context, s *scope) (bool, error) {
	if err := kube.CheckDecoded(s.object); err != nil {
		s.problem = &problem{err.Reason, err.Message}
	}
	return s.problem != nil, nil
}

// threadTurned passes what of a Thread its pending effects depend on.
func threadTurned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*skeinv1.Thread)
		after, ok2 := e.ObjectNew.(*skeinv1.Thread)
		return ok1 && ok2 && (before.Status.ThreadID != after.Status.ThreadID || before.Status.TerminatedAt != after.Status.TerminatedAt)
	}}
}
