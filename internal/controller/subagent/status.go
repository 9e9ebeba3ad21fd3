package subagent

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
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube"
)

// gatherFor is how long a status that is about to change again waits for that. A child whose session ends within this
// time costs one write.
const gatherFor = time.Second

// showProgressAfter is how old the step and the time of a child that works may be in its status.
const showProgressAfter = time.Minute

// writeStatus computes the whole status, and writes it when it changed and the limit of status writes allows it (K8S-07).
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, failed error) (ctrl.Result, error) {
	before := s.object.DeepCopy()
	at := r.Clock.Now()
	s.compute(failed, at)
	later := ctrl.Result{}
	if s.run != nil && !s.run.Status.Ended() {
		later.RequeueAfter = showProgressAfter
	}
	if equality.Semantic.DeepEqual(before.Status, s.object.Status) {
		r.statusLimit.Done(s.req)
		return later, nil
	}
	var gather time.Duration
	switch {
	case s.isUrgent(&before.Status):
	case before.Status.Entry != nil && *before.Status.Entry == *s.object.Status.Entry &&
		equality.Semantic.DeepEqual(before.Status.Conditions, s.object.Status.Conditions):
		gather = showProgressAfter // only the step and the time
	default:
		gather = gatherFor
	}
	wait, write := r.statusLimit.Decide(s.req, gather, at)
	if !write {
		if wait.Throttled && failed == nil { // after a failure the next reconcile may be far away
			r.notifications.Suppress(s.req)
		}
		result := ctrl.Result{RequeueAfter: wait.After}
		if wait.Throttled && failed == nil { // it has waited by then, and its notifications are dropped
			result.Priority = ptr.To(watches.ChangedPriority)
		}
		return result, nil
	}
	if written, err := conditions.WriteStatus(ctx, r.Client, r.Recorder, s.object, client.MergeFrom(before)); !written {
		return ctrl.Result{}, err
	}
	r.statusLimit.Done(s.req)
	conditions.RecordInvalid(r.Recorder, s.object, before.Status.Conditions, s.object.Status.Conditions)
	return later, nil
}

// isUrgent reports whether a client may wait for the change: a final status, an end, or a problem that appeared or
// disappeared. The first status of a new child without a problem is not urgent.
func (s *scope) isUrgent(before *skeinv1.SubagentStatus) bool {
	after := &s.object.Status
	if kube.ChildEnded(after.Entry.Status) && (before.Entry == nil || before.Entry.Status != after.Entry.Status) {
		return true
	}
	if meta.IsStatusConditionTrue(after.Conditions, skeinv1.ConditionTerminated) != meta.IsStatusConditionTrue(before.Conditions, skeinv1.ConditionTerminated) {
		return true
	}
	was, is := conditions.Ready(before.Conditions), conditions.Ready(after.Conditions)
	if before.Entry == nil && s.problem == nil && is.Reason != skeinv1.ReasonInternalError {
		return false
	}
	return was.Status != is.Status || was.Reason != is.Reason
}

// compute is the only function that makes a Subagent's status.
func (s *scope) compute(failed error, at time.Time) {
	o, status := s.object, &s.object.Status
	status.ObservedGeneration = o.Generation
	entry := kube.Entry(o)
	if s.child != nil {
		entry.ThreadID = s.child.ThreadID()
	}
	entry.Status = s.entryStatus(entry)
	status.Entry = &entry
	if s.row != nil {
		last := metav1.Unix(s.row.LastActivityAt/1e6, 0)
		status.LastActivityTime = &last
	}
	if s.run != nil {
		status.Steps = int32(min(s.run.Steps, 1<<30))
	}
	w := conditions.Writer{List: &status.Conditions, Generation: o.Generation, Now: at}
	s.computeReady(w, failed)
	s.computeTerminated(w)
}

// entryStatus returns the status in the child's row, or the status that follows without a row.
func (s *scope) entryStatus(entry skeinv1.ChildStatus) string {
	switch {
	case s.row != nil && s.row.Deleting:
		return kube.ChildTerminated
	case s.row != nil && s.row.RegistryStatus != "":
		return s.row.RegistryStatus
	case s.row != nil:
		return kube.ChildPending
	case s.refused != "":
		return kube.ChildFailed
	case s.childless:
		return kube.ChildTerminated
	default:
		return entry.Status
	}
}

func (s *scope) computeReady(w conditions.Writer, failed error) {
	switch {
	case failed != nil:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInternalError, conditions.Failure(failed))
	case s.problem != nil:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, s.problem.reason, s.problem.message)
	case s.refused != "":
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonChildRefused, s.refused)
	case s.childless:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, "the child Thread was deleted or never created, so the Subagent has ended")
	default:
		s.mirrorReady(w)
	}
}

// mirrorReady copies the child Thread's own Ready condition.
func (s *scope) mirrorReady(w conditions.Writer) {
	switch c := conditions.Ready(s.child.Status.Conditions); c.Status {
	case metav1.ConditionTrue:
		w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	case metav1.ConditionFalse:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotReady, "Thread \""+s.child.Name+"\" is not ready: "+c.Message)
	default:
		if s.run != nil { // its agent was ready, and the Thread says so soon
			w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonReady, "")
			return
		}
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonProgressing, "Thread \""+s.child.Name+"\" is being created")
	}
}

func (s *scope) computeTerminated(w conditions.Writer) {
	switch {
	case s.row != nil && s.row.TerminatedAt != 0:
		reason := s.row.TerminatedReason
		if reason == "" {
			reason = skeinv1.ReasonTerminatedByRequest
		}
		w.Set(skeinv1.ConditionTerminated, metav1.ConditionTrue, reason, "")
	case s.row != nil && s.row.Deleting:
		w.Set(skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonTerminatedByRequest, "the child Thread is being deleted")
	case s.refused != "":
		w.Set(skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonChildRefused, s.refused)
	case s.childless && s.parentRow.TerminatedAt == 0:
		w.Set(skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonTerminatedByRequest, "the child Thread was deleted")
	case s.childless:
		w.Set(skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonParentTerminated, "the parent was terminated before the child Thread was created")
	case s.row == nil && meta.IsStatusConditionTrue(s.object.Status.Conditions, skeinv1.ConditionTerminated):
		// The end of a child is final, and nothing that was read says otherwise. A refusal is on record here alone.
	default:
		w.Set(skeinv1.ConditionTerminated, metav1.ConditionFalse, skeinv1.ReasonActive, "")
	}
}
