// Package scheduledeffect reconciles ScheduledEffects (EFF-01, EFF-04): it records each firing once, when it is due,
// and shows how the handler ended. The engine runs the handler.
package scheduledeffect

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/notifications"
	"github.com/skein-dev/skein/internal/controller/statuslimit"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// +kubebuilder:rbac:groups=skein.dev,resources=scheduledeffects,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=skein.dev,resources=scheduledeffects/status,verbs=patch
// +kubebuilder:rbac:groups=skein.dev,resources=threads,verbs=create;delete

// Engine is the part of the engine that the controller needs.
type Engine interface {
	WakeEffects()
	// Terminate terminates a thread for a reason. It returns store.ErrNotFound when the thread is not stored.
	Terminate(ctx context.Context, threadID, reason string) error
}

// Store is the part of the store that the controller needs.
type Store interface {
	notifications.Subscriber
	Thread(ctx context.Context, id string) (*store.Thread, error)
	FirstRun(ctx context.Context, threadID string) (*store.Run, error)
	store.FiringStore
}

// Options are the options of the controller.
type Options struct {
	// Client reads its own writes from the cache.
	Client client.Client
	// Live reads from the API server, past the cache, which may not have all namespaces. Client when nil.
	Live   client.Reader
	Store  Store
	Engine Engine
	// Recorder records Events. It may be nil.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Workers  int
}

// Reconciler reconciles ScheduledEffects.
type Reconciler struct {
	Options
	notifications *notifications.Source
	statusLimit   *statuslimit.Limiter
	queue         dueQueue
	deleted       deletions
	underWay      underWay
	unowned       unowned
	endedSeen     endedSeen
	firstRuns     firstRuns
}

// New returns a reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, notifications: notifications.NewEffectSource(o.Store), statusLimit: statuslimit.New()}
}

func (r *Reconciler) live() client.Reader {
	if r.Live != nil {
		return r.Live
	}
	return r.Client
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	effects := func() client.ObjectList { return &skeinv1.ScheduledEffectList{} }
	err := ctrl.NewControllerManagedBy(mgr).
		Named("scheduledeffect").
		Watches(&skeinv1.ScheduledEffect{}, r.byDueTime(), builder.WithPredicates(predicate.Or(watches.SpecChanged(mgr.GetClient()), predicate.Predicate(predicate.AnnotationChangedPredicate{}), ownerLeft()))).
		Watches(&skeinv1.Thread{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &skeinv1.ScheduledEffect{}, handler.OnlyControllerOwner()), builder.WithPredicates(threadOfFiringTurned())).
		Watches(&skeinv1.Thread{}, r.byThread(watches.ByIndex(mgr.GetCache(), effects, objects.IndexThread)), builder.WithPredicates(threadTurned())).
		Watches(&skeinv1.Effect{}, watches.ByIndex(mgr.GetCache(), effects, objects.IndexEffect), builder.WithPredicates(watches.ReadyTurned())).
		Watches(&skeinv1.Agent{}, watches.ByIndex(mgr.GetCache(), effects, objects.IndexAgent), builder.WithPredicates(watches.ReadyTurned())).
		WatchesRawSource(r.notifications).
		WatchesRawSource(r.ClockSource()).
		WithOptions(watches.Options(r.Workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the scheduledeffect controller: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(r.sweepLoop)); err != nil { // on the leader only
		return fmt.Errorf("set up the sweep of deleted ScheduledEffects: %w", err)
	}
	return nil
}

// scope holds what the phases of one reconcile share.
type scope struct {
	req      ctrl.Request
	object   *skeinv1.ScheduledEffect
	at       time.Time // of this reconcile
	due      time.Time
	thread   *skeinv1.Thread
	row      *store.Thread // the stored thread
	firing   *store.Firing // nil until it is recorded
	canceled bool
	removed  bool          // whether it was removed before it was due, which its object has survived
	lost     bool          // whether it has fired, and the record of that is gone
	problem  *problem      // what keeps it from firing
	note     problem       // what it says of itself without a problem
	next     time.Duration // until the next reconcile; 0 means only on an event
	fires    bool          // whether it is due at that time
	again    bool          // whether to reconcile again as soon as the status is written
	told     bool          // whether the object's status says anything, as it is written
	gone     bool          // whether the object was deleted
	waits    bool          // whether to do nothing before the event of its Thread's deletion
	busy     bool          // whether many others are under way
	schedule *schedule     // nil for one-time effects
}

type problem struct{ reason, message string }

// phase is one step of a reconcile. When stop is true, the later phases are skipped.
type phase func(ctx context.Context, s *scope) (stop bool, err error)

// Reconcile brings a ScheduledEffect to its due time and beyond.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Notifications of later changes cause another reconcile.
	r.notifications.Begin(req)
	s := &scope{req: req, object: &skeinv1.ScheduledEffect{}, at: r.Clock.Now(), note: problem{reason: skeinv1.ReasonReady}}
	result, err := r.reconcile(ctx, s)
	if err != nil {
		r.wakeWhenDue(s) // the backoff of an error puts off no due time
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) (ctrl.Result, error) {
	req := s.req
	if err := r.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		r.statusLimit.Forget(req)
		r.notifications.Forget(req)
		r.underWay.set(req, false)
		r.unowned.forget(req)
		r.endedSeen.set(req, 0)
		r.firstRuns.set(req, nil)
		if client.IgnoreNotFound(err) == nil {
			err = r.forget(ctx, req, "")
		}
		return ctrl.Result{}, err
	}
	if err := r.forget(ctx, req, s.object.UID); err != nil || !s.object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	if watches.IsRestoring(s.object) { // what it fired is not here yet
		return ctrl.Result{}, nil
	}
	if left, err := r.deleteLeftOver(ctx, s); left || err != nil {
		return ctrl.Result{}, err
	}
	s.told = len(s.object.Status.Conditions) > 0
	if !oneTime(s.object) {
		return r.reconcileSchedule(ctx, s)
	}
	var failed error
	for _, step := range []phase{
		r.expire,       // delete a finished effect after its TTL
		r.observe,      // an effect that has fired is only observed
		r.checkDecoded, // do not act on a spec that could not be decoded
		r.findThread,   // an effect that has not fired needs its thread,
		r.ensureOwner,  // is deleted with it,
		r.cancel,       // and is canceled when it ends (EFF-06)
		r.findEffect,   // it also needs its Effect
		r.plan,         // and a due time that a restart does not move
		r.fire,         // at which the firing is recorded, once (EFF-04)
	} {
		stop, err := step(ctx, s)
		if failed = err; stop || err != nil {
			break
		}
	}
	if s.gone || s.waits {
		return ctrl.Result{}, failed
	}
	if apierrors.IsConflict(failed) {
		return watches.Outcome(ctrl.Result{}, failed) // a concurrent write of the object: reconcile again, and report nothing
	}
	r.underWay.set(req, s.firing != nil && !s.firing.Status.Ended())
	s.busy = r.underWay.areMany()
	result, err := r.writeStatus(ctx, s, failed)
	if err == nil {
		err = r.ownLasting(ctx, s)
	}
	result.Priority = ptr.To(restPriority)
	if s.again {
		result.Priority = ptr.To(duePriority)
	}
	if s.fires && result.RequeueAfter == s.next {
		// Writing the status may have taken a while, so compute the time again.
		result.RequeueAfter = max(s.due.Sub(r.Clock.Now()), time.Nanosecond)
		result.Priority = ptr.To(duePriority)
	}
	return watches.Outcome(result, failed, err)
}

// checkDecoded reports fields that could not be decoded, and arguments that no handler would get, as a problem. An effect never fires from such
// a spec.
func (r *Reconciler) checkDecoded(_ context.Context, s *scope) (bool, error) {
	if err := objects.CheckDecoded(s.object); err != nil {
		s.problem = &problem{err.Reason, err.Message}
	} else if args := s.object.Spec.Args; args != nil {
		if err := effects.CheckArgs(args.Raw); err != nil {
			s.problem = &problem{skeinv1.ReasonInvalidSpec, "spec.args: " + err.Error()}
		}
	}
	return s.problem != nil, nil
}

// threadTurned passes updates of a Thread that its pending effects depend on.
func threadTurned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*skeinv1.Thread)
		after, ok2 := e.ObjectNew.(*skeinv1.Thread)
		return ok1 && ok2 && (before.UID != after.UID || before.Status.ThreadID != after.Status.ThreadID ||
			before.Status.TerminatedAt != after.Status.TerminatedAt || leavesDependents(before) != leavesDependents(after))
	}}
}

// ownerLeft passes updates that take an owner reference away, as --cascade=orphan does. The effect may be another Thread's from then on.
func ownerLeft() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetOwnerReferences()) > len(e.ObjectNew.GetOwnerReferences())
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// threadOfFiringTurned passes the deletion of a Thread, and updates after which it shows another run, the end of its run, or, before its first
// run, another reason why it is not ready. A Thread that becomes ready at once passes only when its run starts and ends.
func threadOfFiringTurned() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*skeinv1.Thread)
			after, ok2 := e.ObjectNew.(*skeinv1.Thread)
			return ok1 && ok2 && (outcomeOf(before) != outcomeOf(after) || runOf(before) != runOf(after) || before.Status.TerminatedAt != after.Status.TerminatedAt ||
				before.Status.LastRun == nil && wrongWith(before) != wrongWith(after))
		},
	}
}

// wrongWith returns why a Thread is not ready, or "".
func wrongWith(t *skeinv1.Thread) string {
	if c := conditions.Ready(t.Status.Conditions); c.Status == metav1.ConditionFalse {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// runOf returns the id of the newest run of a Thread, or "".
func runOf(t *skeinv1.Thread) string {
	if t.Status.LastRun == nil {
		return ""
	}
	return t.Status.LastRun.ID
}

func outcomeOf(t *skeinv1.Thread) skeinv1.RunOutcome {
	if t.Status.LastRun == nil {
		return ""
	}
	return t.Status.LastRun.Outcome
}
