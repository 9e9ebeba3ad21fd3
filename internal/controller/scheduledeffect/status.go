package scheduledeffect

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

// gatherFor is how long a status that is about to change again waits for that. An effect that ends within this time
// costs one write.
const gatherFor = time.Second

// underWayFor is how long a status that says that something is under way waits for its end. When many effects are due
// at once, and wait for each other's handlers, each still costs one write, which comes when it has waited for so long. So does one whose
// firing waits for a sandbox, or for a definition: a short wait costs no write. A firing of a schedule costs one write, too.
const underWayFor = 10 * time.Second

// writeStatus computes the whole status, and writes it when it changed and the limit of status writes allows it (K8S-07).
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, failed error) (ctrl.Result, error) {
	if failed == nil && s.onlyWaits() {
		r.statusLimit.Done(s.req)
		return ctrl.Result{RequeueAfter: s.next}, nil
	}
	before := s.object.DeepCopy()
	s.compute(failed)
	if equality.Semantic.DeepEqual(before.Status, s.object.Status) {
		r.statusLimit.Done(s.req)
		return ctrl.Result{RequeueAfter: s.next}, nil
	}
	var gather time.Duration
	switch {
	case s.isUrgent():
	case s.isUnderWay(), s.schedule != nil && s.schedule.mayWaitForEnd(&before.Status):
		gather = underWayFor
	default:
		gather = gatherFor
	}
	wait, write := r.statusLimit.Decide(s.req, gather, s.at)
	if !write {
		return ctrl.Result{RequeueAfter: shorter(wait.After, s.next)}, nil
	}
	// The patch applies only to the object as it was read. A replica that does not lead any more, or whose cache is behind, must neither
	// move a due time that has fired nor take back what its successor has written.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if written, err := conditions.WriteStatus(ctx, r.Client, r.Recorder, s.object, patch); !written {
		return ctrl.Result{}, err
	}
	r.statusLimit.Done(s.req)
	s.told = true
	conditions.RecordInvalid(r.Recorder, s.object, before.Status.Conditions, s.object.Status.Conditions)
	if s.again {
		return ctrl.Result{RequeueAfter: time.Nanosecond}, nil
	}
	return ctrl.Result{RequeueAfter: s.next}, nil
}

// onlyWaits reports whether an effect waits for its time, and keeps the status that it was created with. If code scheduled it, no client
// reads its conditions, and to write them would be half of what many pending effects cost. If a person declared it and it is due soon, its
// end is written soon.
func (s *scope) onlyWaits() bool {
	if s.schedule != nil || !s.fires || s.again {
		return false
	}
	return s.isBrief() || s.object.Spec.At != nil && scheduledBy(s.object) != "" && len(s.object.Status.Conditions) == 0
}

// isUrgent reports whether a person may wait for the change, whether the due time must be written before the effect
// fires, or whether the next change is too far away to wait for.
func (s *scope) isUrgent() bool {
	status := &s.object.Status
	if d := s.schedule; d != nil {
		again := s.again && !d.ended // otherwise the next reconcile shows that it has ended
		return d.unseen || again || status.CompletionTime != nil || s.problem != nil && !d.waiting
	}
	if s.firing == nil && (s.object.Spec.At == nil || s.due.Sub(s.at) > gatherFor) {
		return true
	}
	return status.CompletionTime != nil && !s.busy || s.problem != nil && s.firing == nil
}

// isUnderWay reports whether a one-time effect has fired and not ended, or many others have not. Its end changes the status again.
func (s *scope) isUnderWay() bool {
	return s.schedule == nil && s.firing != nil && (s.object.Status.CompletionTime == nil || s.busy)
}

// shorter returns the shorter of two waiting times. 0 means none.
func shorter(a, b time.Duration) time.Duration {
	if b == 0 || (a != 0 && a < b) {
		return a
	}
	return b
}

// compute is the only function that makes a ScheduledEffect's status.
func (s *scope) compute(failed error) {
	o, status := s.object, &s.object.Status
	if failed == nil { // otherwise an edit may not have been looked at: see expires
		status.ObservedGeneration = o.Generation
	}
	if !s.due.IsZero() {
		status.ScheduledAt = scheduledAt(s.due)
	}
	w := conditions.Writer{List: &status.Conditions, Generation: o.Generation, Now: s.at}
	if s.canceled || s.lost {
		status.NextTime = nil
	}
	switch {
	case s.schedule != nil && !s.canceled:
		s.schedule.compute(w)
	case failed != nil && s.firing == nil && status.FiredAt != 0: // it has fired, and its firing could not be read
	case status.CompletionTime == nil:
		s.computeState(w)
	}
	if s.canceled && s.schedule != nil && failed == nil {
		s.schedule.computeCanceled()
	}
	switch {
	case failed != nil:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInternalError, conditions.Failure(failed))
	case status.Phase == kube.EffectFailed:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonFailed, "the handler failed")
	case s.schedule != nil && s.schedule.hasFailed():
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonFailed, meta.FindStatusCondition(status.Conditions, skeinv1.ConditionComplete).Message)
	case s.problem != nil:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, s.problem.reason, s.problem.message)
	default:
		w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, s.note.reason, s.note.message)
	}
}

// exact bounds the integers that JSON has exact, and with them status.scheduledAt: its times are those of the years 1684 to 2255. The API
// server refuses a status beyond that.
const exact = 1<<53 - 1

// scheduledAt returns a due time as the status has it, or the nearest one that it can have.
func scheduledAt(due time.Time) int64 { return min(max(due.UnixMicro(), -exact), exact) }

// endLost says what is known of a firing whose record is gone.
const endLost = "it fired, and how that ended is not known: the record of it was deleted with the Thread that it fired for"

// firingLost says what is known of an effect of one time of which there is neither a firing nor a record that it did not fire.
const firingLost = "its due time has passed, and it is not known whether it fired: there is no record of that"

// computeState sets how far the effect has come.
func (s *scope) computeState(w conditions.Writer) {
	status := &s.object.Status
	switch f := s.firing; {
	case f != nil:
		status.FiredAt, status.NextTime, status.LastTime = f.FiredAt, nil, ptr.To(seconds(f.Due))
		w.Set(skeinv1.ConditionFired, metav1.ConditionTrue, skeinv1.ReasonFired, "")
		s.computeEnd(w, f)
	case s.lost:
		status.Phase, status.Active, status.LastOutcome = kube.EffectUnknown, 0, ""
		status.CompletionTime = ptrTime(s.at)
		w.Set(skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonUnknown, endLost)
	case s.canceled:
		status.Phase = kube.EffectCanceled
		status.CompletionTime = ptrTime(s.at)
		why := "the thread was terminated before the effect was due"
		if s.removed {
			why = "it was removed before it was due"
		}
		w.Set(skeinv1.ConditionFired, metav1.ConditionFalse, skeinv1.ReasonCanceled, why)
		w.Set(skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonCanceled, why)
	default:
		status.Phase = kube.EffectPending
		if !s.due.IsZero() {
			status.NextTime = ptrTime(s.due)
		}
		w.Set(skeinv1.ConditionFired, metav1.ConditionFalse, skeinv1.ReasonPending, "")
		w.Set(skeinv1.ConditionComplete, metav1.ConditionFalse, skeinv1.ReasonPending, "")
	}
}

// computeEnd sets how the firing ended. Its error may have text that code or a model wrote, so the store has it alone (K8S-07).
func (s *scope) computeEnd(w conditions.Writer, f *store.Firing) {
	status := &s.object.Status
	status.Active, status.LastOutcome = 0, outcomes[f.Status]
	switch f.Status {
	case store.FiringSucceeded:
		status.Phase = kube.EffectSucceeded
		w.Set(skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonSucceeded, "")
	case store.FiringFailed:
		status.Phase = kube.EffectFailed
		w.Set(skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonFailed, "the handler failed: kubectl skein effect history "+s.object.Name+" says why")
	case store.FiringCanceled:
		status.Phase = kube.EffectCanceled
		w.Set(skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonCanceled, "the firing was canceled before it had ended: kubectl skein effect history "+s.object.Name+" says why")
	default:
		status.Phase, status.Active = kube.EffectFired, 1
		message := ""
		if f.Error != "" {
			message = "an attempt failed, and there will be another: kubectl skein effect history " + s.object.Name + " says why"
		}
		w.Set(skeinv1.ConditionComplete, metav1.ConditionFalse, skeinv1.ReasonFired, message)
		s.problem = waitProblem(f)
		return
	}
	status.CompletionTime = ptrTime(time.UnixMicro(f.EndedAt))
}

// waitProblem returns the problem of an object whose firing waits for a sandbox or a definition; nil if it does not.
func waitProblem(f *store.Firing) *problem {
	if f.Status.Ended() || f.Waiting == "" {
		return nil
	}
	return &problem{skeinv1.ReasonWaiting, "a firing waits: " + f.Waiting}
}

func ptrTime(t time.Time) *metav1.Time {
	out := metav1.NewTime(t.Truncate(time.Second))
	return &out
}
