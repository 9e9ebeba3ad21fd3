package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/recurrence"
	"github.com/skein-dev/skein/internal/store"
)

// oneTime reports whether an object is an effect that fires once for one thread, without policies of its own.
// Everything else has a schedule in the store, which may be one of a single time, and keeps it when an edit takes its
// policies away. The status says so: the phase, which may be written later, or the answers to requests by hand, which are
// written before the requests are removed.
func oneTime(o *skeinv1.ScheduledEffect) bool {
	s := &o.Spec
	if len(s.Schedules) > 0 || s.Effect == "" || s.ThreadRef == nil || slices.Contains(schedulePhases, o.Status.Phase) || len(o.Status.Requests) > 0 {
		return false
	}
	return !wasAsked(o) && !s.Suspend && s.Jitter == nil && s.StartingDeadlineSeconds == nil && s.Retry == nil && s.Timeout == nil
}

// schedule is what the phases of an object with a schedule share, beside the scope.
type schedule struct {
	*scope
	plan   *recurrence.Plan
	jitter time.Duration
	// was is how far the schedule has come as it is stored; nil before the first reconcile.
	was *store.EffectSchedule
	// now is was, changed by this reconcile.
	now store.EffectSchedule
	// edited says that the times were edited since they were stored. before are the due times until then; nil when they are unknown.
	edited    bool
	before    *recurrence.Plan
	active    []store.Firing
	recent    []store.Firing     // the newest, whether they ended or not
	outcome   *store.Firing      // of an effect of one time, without those by hand; nil while it has not ended
	lastEnded *store.Firing      // nil if none has ended
	runByHand []store.Firing     // the newest one of an effect of one time that may have failed
	skips     []store.EffectSkip // the newest records of what did not fire
	threads   []target
	beyond    []target           // matched by the selector, but too many
	nextAt    time.Time          // the next due time, with jitter; zero if there is none
	failed    bool               // an error ended the reconcile
	sought    bool               // nextAt is known
	over      bool               // nothing fires any more
	ended     bool               // the end of a firing was recorded by this reconcile
	recorded  bool               // something was recorded by this reconcile
	unseen    bool               // the status does not speak of the present spec yet
	waiting   bool               // what keeps it from being ready is that a firing waits
	args      []byte             // for the effect or the tool
	spent     map[string]float64 // the cost of firings by day
	// firstRuns are the first runs, as far as they are known, of the Threads of firings that are under way.
	firstRuns map[store.FiringKey]string
	retry     time.Duration // until a Thread that could not be created is tried again; 0 if there is none
}

// target is a thread for which a schedule fires; the zero target stands for none.
type target struct{ id, name string }

// recentFirings is how many firings are read for the status.
const recentFirings = 20

// reconcileSchedule brings an object with a schedule to its next due time.
func (r *Reconciler) reconcileSchedule(ctx context.Context, s *scope) (ctrl.Result, error) {
	d := &schedule{scope: s, unseen: s.object.Status.ObservedGeneration != s.object.Generation}
	s.schedule = d
	var failed error
	for _, step := range []func(ctx context.Context, d *schedule) (stop bool, err error){
		r.expireSchedule, // delete a finished object after its TTL
		r.readSpec,       // do not act on a spec that is wrong
		r.readStored,     // how far the schedule has come, and what is under way
		r.findThreads,    // the threads for which it fires
		r.readArgs,       // what it passes on
		r.checkTarget,    // report an Effect or an Agent that is not ready; firings wait for it
		r.recordDue,      // record what is due, once (EFF-04), and what does not fire (EFF-07)
		r.planNext,       // find the next due time
		r.byHand,         // record what a person asked for
		r.release,        // start what waited for an earlier firing
		r.runThreads,     // create Threads from the template, and watch them
		r.prune,          // keep the history within its limits
	} {
		stop, err := step(ctx, d)
		if failed = err; stop || err != nil {
			break
		}
	}
	if s.gone || s.waits {
		return ctrl.Result{}, failed
	}
	if failed == nil && d.canceled && wasAsked(d.object) {
		failed = r.refuseRequests(ctx, d, "nothing fires any more: the Thread was terminated, or the effect was removed")
	}
	if isConflict(failed) {
		return ctrl.Result{RequeueAfter: 5 * time.Millisecond}, nil // read again
	}
	return r.finishSchedule(ctx, d, failed)
}

func (r *Reconciler) expireSchedule(ctx context.Context, d *schedule) (bool, error) {
	if _, ok := expires(d.object); !ok {
		return false, nil
	}
	return r.expire(ctx, d.scope)
}

// expires returns when an object with a schedule is deleted because it has finished. ok is false when it is not, or not yet, to be.
func expires(o *skeinv1.ScheduledEffect) (at time.Time, ok bool) {
	switch {
	case wasAsked(o), o.Status.CompletionTime == nil:
		return at, false
	case len(o.Spec.Schedules) > 0 && o.Spec.TTLSecondsAfterFinished == nil:
		return at, false
	case o.Status.ObservedGeneration != o.Generation:
		return at, false // an edit may have given it more to do
	case conditions.Ready(o.Status.Conditions).Reason == skeinv1.ReasonInvalidSpec:
		return at, false // an edit was to give it more to do, and is to be corrected
	}
	return o.Status.CompletionTime.Add(ttl(o)), true
}

func (r *Reconciler) readSpec(ctx context.Context, d *schedule) (bool, error) {
	if stop, err := r.checkDecoded(ctx, d.scope); stop || err != nil {
		return stop, err
	}
	o := d.object
	if !isPlanned(o) && len(o.Spec.Schedules) == 0 { // a delay counts from now on
		return r.plan(ctx, d.scope)
	}
	plan, err := effectplan.Of(&o.Spec, kube.DueTime(o))
	if err != nil {
		d.problem = &problem{skeinv1.ReasonInvalidSpec, err.Error()}
		return true, nil
	}
	d.plan, d.jitter = plan, effectplan.Jitter(o)
	return false, nil
}

func (r *Reconciler) readStored(ctx context.Context, d *schedule) (bool, error) {
	o := d.object
	id, fingerprint := string(o.UID), effectplan.Fingerprint(effectplan.Times(&o.Spec))
	r.notifications.Track(id, d.req)
	was, err := r.Store.EffectSchedule(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		d.now = store.EffectSchedule{EffectID: id, Namespace: o.Namespace, Name: o.Name, Fingerprint: fingerprint, Cursor: firstCursor(o)}
	case err != nil:
		return true, fmt.Errorf("read the progress of the schedule: %w", err)
	case was.Removed:
		d.canceled, d.removed, d.over = true, true, true
		return true, nil
	default:
		d.was, d.now = was, *was
		if fingerprint != was.Fingerprint {
			// An edited schedule counts from now, so that nothing that fired fires again.
			d.edited, d.before = true, effectplan.OfTimes(was.Times, was.Fingerprint)
			d.now.Fingerprint, d.now.Cursor, d.now.Failures = fingerprint, max(was.Cursor, d.at.UnixMicro()), 0
		}
	}
	if stop, err := r.readFirings(ctx, d); stop || err != nil {
		return true, err
	}
	if d.was == nil && len(o.Spec.Schedules) == 0 && len(d.recent) > 0 { // it fired before it had policies, or was run by hand
		d.now.Cursor = d.recent[0].Due
	}
	if d.wasReopened() { // it counts from now, as after an edit of its times
		d.now.Cursor = max(d.now.Cursor, d.at.UnixMicro())
	}
	return false, nil
}

// readFirings reads the firings that are under way, the newest ones, the one that ended last, what did not fire last, and how an effect of one
// time ended.
func (r *Reconciler) readFirings(ctx context.Context, d *schedule) (bool, error) {
	id := d.now.EffectID
	var err error
	if d.active, err = r.Store.Firings(ctx, store.FiringQuery{EffectID: id, Active: true, Limit: maxActive, Brief: true}); err != nil {
		return true, fmt.Errorf("read the firings that are under way: %w", err)
	}
	if d.recent, err = r.Store.Firings(ctx, store.FiringQuery{EffectID: id, Limit: recentFirings, Brief: true}); err != nil {
		return true, fmt.Errorf("read the newest firings: %w", err)
	}
	if d.lastEnded, err = r.Store.LastEnded(ctx, id); err != nil && !errors.Is(err, store.ErrNotFound) {
		return true, fmt.Errorf("read the firing that ended last: %w", err)
	}
	if d.skips, err = r.Store.EffectSkips(ctx, id, recentSkips); err != nil {
		return true, fmt.Errorf("read what did not fire: %w", err)
	}
	if len(d.object.Spec.Schedules) == 0 {
		d.outcome, err = r.Store.Outcome(ctx, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return true, fmt.Errorf("read how it ended: %w", err)
		}
		if err := r.readRunByHand(ctx, d); err != nil {
			return true, err
		}
	}
	return false, nil
}

// readRunByHand reads the firings of the newest run by hand of an effect of one time that may have failed. They are one for each of its threads.
func (r *Reconciler) readRunByHand(ctx context.Context, d *schedule) error {
	d.runByHand = nil
	newest := slices.IndexFunc(d.recent, func(f store.Firing) bool { return f.Origin == store.OriginManual })
	if newest < 0 || d.outcome != nil && d.outcome.Status != store.FiringFailed {
		return nil
	}
	due := d.recent[newest].Due
	for q := (store.FiringQuery{EffectID: d.now.EffectID, Before: due + 1, Limit: historyPage, Brief: true}); ; {
		page, err := r.Store.Firings(ctx, q)
		if err != nil {
			return fmt.Errorf("read the newest run by hand: %w", err)
		}
		earlier := slices.IndexFunc(page, func(f store.Firing) bool { return f.Due != due })
		if earlier >= 0 {
			page = page[:earlier]
		}
		d.runByHand = append(d.runByHand, page...)
		if len(page) < q.Limit {
			return nil
		}
		q.Before, q.BeforeThread = due, &page[len(page)-1].ThreadID
	}
}

// firstCursor returns the time after which due times count. A schedule counts from its creation. A single time that
// has passed already still fires.
func firstCursor(o *skeinv1.ScheduledEffect) int64 {
	if len(o.Spec.Schedules) > 0 {
		return o.CreationTimestamp.UnixMicro()
	}
	return kube.DueTime(o).UnixMicro() - 1
}

// planNext finds the next due time, and whether there is anything left to do.
func (r *Reconciler) planNext(_ context.Context, d *schedule) (bool, error) {
	d.sought = true
	if d.over {
		d.nextAt = time.Time{}
	} else if next := d.nextRecorded(); !next.IsZero() {
		d.nextAt = next.Add(d.jitter)
		d.fires = true
		d.next = max(d.nextAt.Sub(r.Clock.Now()), time.Nanosecond)
	} else {
		d.over = true
	}
	if most := d.object.Spec.MaxFirings; most != nil && d.now.Fired >= *most {
		d.over, d.nextAt, d.fires, d.next = true, time.Time{}, false, 0
	}
	return false, nil
}
