package scheduledeffect

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/store"
)

// Phases of an object with a schedule.
const (
	phaseActive    = "Active"
	phaseSuspended = "Suspended"
	phasePaused    = "Paused"
	phaseFinished  = "Finished"
	// phaseLimitReached: the due times of the rest of the day do not fire.
	phaseLimitReached = "LimitReached"
)

var schedulePhases = []string{phaseActive, phaseSuspended, phasePaused, phaseLimitReached, phaseFinished}

// warn records a warning Event.
func (r *Reconciler) warn(o *skeinv1.ScheduledEffect, reason, message string) {
	if r.Recorder != nil {
		warn(r.Recorder, o, reason, message)
	}
}

func warn(recorder events.EventRecorder, o *skeinv1.ScheduledEffect, reason, message string) {
	recorder.Eventf(o, nil, corev1.EventTypeWarning, reason, "Fire", "%s", message)
}

// finishSchedule writes the status and says when to reconcile again.
func (r *Reconciler) finishSchedule(ctx context.Context, d *schedule, failed error) (ctrl.Result, error) {
	d.failed = failed != nil
	result, err := r.writeStatus(ctx, d.scope, failed)
	if failed == nil && d.again {
		result.RequeueAfter = time.Millisecond
	}
	result.Priority = ptr.To(restPriority)
	if failed == nil {
		result.RequeueAfter = shorter(result.RequeueAfter, d.retry)
		if at, ok := expires(d.object); ok {
			result.RequeueAfter = shorter(result.RequeueAfter, max(at.Sub(r.Clock.Now()), time.Nanosecond))
		}
	}
	if d.fires {
		rest := max(d.nextAt.Sub(r.Clock.Now()), time.Nanosecond)
		if result.RequeueAfter == 0 || rest < result.RequeueAfter {
			result.RequeueAfter = rest
		}
		if result.RequeueAfter < soon {
			result.Priority = ptr.To(duePriority)
		}
	}
	if failed == nil && err == nil && d.crowded() {
		r.notifications.Suppress(d.req)
		result.RequeueAfter = shorter(result.RequeueAfter, gatherFor)
	}
	return watches.Outcome(result, failed, err)
}

// crowded reports whether many firings are under way, and none waits for another one's end. Each reconcile reads all of them, so one for the end
// of each would read them as often as there are any: ends are gathered.
func (d *schedule) crowded() bool {
	return len(d.active) > manyUnderWay && !slices.ContainsFunc(d.active, func(f store.Firing) bool { return f.Status == store.FiringQueued })
}

// wasRead reports whether this reconcile has read what is stored. It does not of a finished object that waits for its deletion.
func (d *schedule) wasRead() bool { return d.plan != nil && d.now.EffectID != "" }

// compute sets the status of an object with a schedule.
func (d *schedule) compute(w conditions.Writer) {
	status := &d.object.Status
	if !d.wasRead() {
		return
	}
	if d.sought || !d.failed { // an error takes back nothing
		d.computeNext(status)
	}
	d.computePhase(w, d.computeFirings(status))
}

// computeFirings sets what is under way and what has fired. It returns the firing that ended last; nil if there is none.
func (d *schedule) computeFirings(status *skeinv1.ScheduledEffectStatus) (ended *store.Firing) {
	status.Active = int32(len(d.active))
	status.Fired, status.Skipped = d.now.Fired, d.now.Skipped
	if len(d.skips) > 0 {
		k := d.skips[0]
		status.LastSkip = &skeinv1.EffectSkip{Time: seconds(k.Due), Until: seconds(k.Until), Count: k.Count, Reason: k.Reason}
	}
	for i := range d.recent {
		f := &d.recent[i]
		if status.LastTime == nil || f.Due > status.LastTime.UnixMicro() {
			status.LastTime = ptr.To(seconds(f.Due))
		}
		status.FiredAt = max(status.FiredAt, f.FiredAt)
	}
	if d.lastEnded != nil {
		status.LastOutcome = outcomes[d.lastEnded.Status]
	}
	return d.lastEnded
}

// computeNext sets the next due time. A schedule that is paused has none: what is due meanwhile does not fire. One whose daily limit is
// reached has the first of a later day.
func (d *schedule) computeNext(status *skeinv1.ScheduledEffectStatus) {
	status.NextTime = nil
	next := d.nextAt
	if why, ends := d.limitedNow(); why != "" && !next.IsZero() {
		if next = d.plan.Next(ends.Add(-time.Microsecond)); !next.IsZero() {
			next = next.Add(d.jitter)
		}
	}
	if !next.IsZero() && d.pausedNow() == "" {
		status.NextTime = ptr.To(metav1.NewTime(next.Truncate(time.Second)))
	}
	if d.sought && len(d.object.Spec.Schedules) > 0 { // otherwise it holds the due time that after counts from
		status.ScheduledAt = 0
		if !d.nextAt.IsZero() {
			status.ScheduledAt = scheduledAt(d.nextAt)
		}
	}
}

// computeCanceled sets what has fired of a schedule that fires nothing any more: its thread was terminated, or it was removed. Nothing of it
// is under way, but for the handler that removed it.
func (d *schedule) computeCanceled() {
	if d.wasRead() {
		d.computeFirings(&d.object.Status)
	}
	d.object.Status.Active = 0
}

var outcomes = map[store.FiringStatus]string{store.FiringSucceeded: "Succeeded", store.FiringFailed: "Failed", store.FiringCanceled: "Canceled"}

func (d *schedule) computePhase(w conditions.Writer, ended *store.Firing) {
	status := &d.object.Status
	completed := status.CompletionTime
	status.CompletionTime = nil
	switch {
	case d.over && len(d.active) == 0:
		status.Phase = phaseFinished
		status.CompletionTime = d.completionTime(completed, ended)
		d.computeComplete(w)
		return
	case d.object.Spec.Suspend:
		status.Phase = phaseSuspended
	case d.pausedNow() != "":
		status.Phase = phasePaused
	default:
		d.computeActive(status)
	}
	w.Set(skeinv1.ConditionComplete, metav1.ConditionFalse, skeinv1.ReasonPending, "")
	if d.problem == nil && status.Phase == phasePaused {
		d.problem = &problem{skeinv1.ReasonPaused, d.pausedNow() + ": correct the cause, then run kubectl skein effect resume " + d.object.Name}
	}
	if d.problem != nil {
		return
	}
	for i := range d.active {
		if d.problem = waitProblem(&d.active[i]); d.problem != nil {
			d.waiting = true
			return
		}
	}
}

// mayWaitForEnd reports whether a firing is under way, and the status says nothing new but what each firing changes. The end of the firing changes
// that again. A firing that waits is under way too.
func (d *schedule) mayWaitForEnd(before *skeinv1.ScheduledEffectStatus) bool {
	return len(d.active) > 0 && equality.Semantic.DeepEqual(d.lastingStatus(before), d.lastingStatus(&d.object.Status))
}

// lastingStatus returns a status without what each firing changes.
func (d *schedule) lastingStatus(status *skeinv1.ScheduledEffectStatus) *skeinv1.ScheduledEffectStatus {
	rest := *status
	rest.Active, rest.Fired, rest.FiredAt, rest.LastTime, rest.ScheduledAt = 0, 0, 0, nil, 0
	if rest.NextTime != nil { // whether there is one says whether it waits
		rest.NextTime = &metav1.Time{}
	}
	if d.waiting {
		rest.Conditions = slices.DeleteFunc(slices.Clone(rest.Conditions), func(c metav1.Condition) bool { return c.Type == skeinv1.ConditionReady })
	}
	return &rest
}

// computeActive sets the phase of a schedule that may fire, unless its limit of the day is reached.
func (d *schedule) computeActive(status *skeinv1.ScheduledEffectStatus) {
	why, ends := d.limitedNow()
	switch {
	case why != "":
		status.Phase = phaseLimitReached
		d.note = problem{skeinv1.ReasonLimitReached, fmt.Sprintf("%s: due times do not fire until %s, unless you raise spec.dailyLimit", why, ends.Format(time.RFC3339))}
	case d.failed && !d.sought && status.Phase == phaseLimitReached: // what the day cost may not have been read
	default:
		status.Phase = phaseActive
	}
}

// completionTime returns when it ended: with its last firing, or when its last due time did not fire. before is what the status said.
func (d *schedule) completionTime(before *metav1.Time, ended *store.Firing) *metav1.Time {
	switch {
	case ended != nil && (len(d.skips) == 0 || ended.EndedAt >= d.skips[0].Until):
		return ptrTime(time.UnixMicro(ended.EndedAt))
	case before != nil:
		return before
	}
	return ptrTime(d.at)
}

// computeComplete sets how it ended. A schedule has done what it says when no due time is left; an effect of one time when that firing
// succeeded, for each of its threads. If its due time did not fire, the reason is that of the skip. A run by hand, before or after it, changes nothing
// about that, and neither does a purge of its thread, with which the record of the firing goes.
func (d *schedule) computeComplete(w conditions.Writer) {
	reason, message := skeinv1.ReasonSucceeded, "no due time is left"
	if d.outcome != nil {
		history := "kubectl skein effect history " + d.object.Name + " says why"
		switch d.outcome.Status {
		case store.FiringFailed:
			reason, message = skeinv1.ReasonFailed, "the firing failed: "+history
			if d.object.Spec.ThreadSelector != nil {
				message = "the firing failed for some of its threads, or all: " + history
			}
		case store.FiringCanceled:
			reason, message = skeinv1.ReasonCanceled, "the firing was canceled before it had ended: "+history
			if k := d.ownSkip(); k != nil { // it could not begin in time
				reason, message = k.Reason, describe(*k)
			}
		}
	} else if k := d.ownSkip(); k != nil {
		reason, message = k.Reason, describe(*k)
	} else if len(d.object.Spec.Schedules) == 0 {
		if meta.IsStatusConditionTrue(d.object.Status.Conditions, skeinv1.ConditionComplete) {
			return // the status has said it
		}
		reason, message = skeinv1.ReasonUnknown, endLost
		if d.now.Fired == 0 {
			message = firingLost
		}
	}
	w.Set(skeinv1.ConditionComplete, metav1.ConditionTrue, reason, message)
}

// hasFailed reports whether an effect of one time has failed, and no run by hand has made up for that. An edit that is wrong is told of first.
func (d *schedule) hasFailed() bool {
	status := &d.object.Status
	if len(d.object.Spec.Schedules) > 0 || status.CompletionTime == nil || d.problem != nil && d.problem.reason == skeinv1.ReasonInvalidSpec {
		return false
	}
	c := meta.FindStatusCondition(status.Conditions, skeinv1.ConditionComplete)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != skeinv1.ReasonFailed {
		return false
	}
	if !d.wasRead() {
		return !meta.IsStatusConditionTrue(status.Conditions, skeinv1.ConditionReady)
	}
	return !d.madeGood()
}

// madeGood reports whether the newest run by hand has succeeded, for each of its threads, after the firing of the due time had failed.
func (d *schedule) madeGood() bool {
	for i := range d.runByHand {
		if f := &d.runByHand[i]; f.Status != store.FiringSucceeded || d.outcome != nil && f.EndedAt < d.outcome.EndedAt {
			return false
		}
	}
	return len(d.runByHand) > 0
}

// seconds returns a time of the store as a status has it. It is not the zero time, which is none to the API server.
func seconds(micros int64) metav1.Time {
	t := time.UnixMicro(micros).Truncate(time.Second)
	if t.IsZero() {
		t = t.Add(time.Second)
	}
	return metav1.NewTime(t)
}
