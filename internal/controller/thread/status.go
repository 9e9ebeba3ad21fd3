package thread

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/store"
)

// Phases of a Thread.
const (
	phasePending    = "Pending"
	phaseIdle       = "Idle"
	phaseRunning    = "Running"
	phaseWaiting    = "Waiting"
	phaseParked     = "Parked"
	phaseTerminated = "Terminated"
)

// writeStatus computes the whole status, and writes it when it changed and the limit of status writes allows it (K8S-07, ADR 3).
// Otherwise it returns when to check again.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, failed error) (ctrl.Result, error) {
	before := s.object.DeepCopy()
	run, err := r.lastRun(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.afterEnd(ctx, s, run); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.answerForLost(ctx, s, run); err != nil {
		return ctrl.Result{}, err
	}
	children, err := r.children(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	at := r.Clock.Now()
	s.compute(run, children, failed, at)
	if err := r.computeState(ctx, s, at); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.computeUsage(ctx, s, run); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.computeRelationships(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	u := classify(&before.Status, &s.object.Status)
	if u == none {
		r.statusLimit.Done(s.req)
		return ctrl.Result{}, nil
	}
	if u == now && failed == nil {
		goes, err := r.expires(ctx, s, at)
		if err != nil {
			return ctrl.Result{}, err
		}
		if goes {
			u = familial // the Thread is most likely gone by then
		}
	}
	waits := gather(u, run, at)
	if u == now && failed == nil && s.childSucceeded(&before.Status) {
		waits = r.childEnds.Gather(r.statusLimit, s.req, at)
	}
	wait, write := r.statusLimit.Decide(s.req, waits, at)
	if !write {
		if wait.Throttled && failed == nil { // after a failure the next reconcile may be far away
			r.notifications.Suppress(s.req)
		}
		result := ctrl.Result{RequeueAfter: wait.After}
		if failed == nil && (wait.Throttled || u != now) { // it has waited by then; after a failure it keeps its priority
			result.Priority = ptr.To(watches.ChangedPriority)
		}
		return result, nil
	}
	if ok, err := conditions.WriteStatus(ctx, r.Client, r.Recorder, s.object, client.MergeFrom(before)); !ok {
		return ctrl.Result{}, err
	}
	r.statusLimit.Done(s.req)
	written.Inc()
	r.recordEvents(ctx, s, before)
	return ctrl.Result{}, nil
}

// childSucceeded reports whether the newest run of a child has succeeded since an earlier status, and nothing else is urgent to show. Its parent
// has the result already, and its Subagent shows it.
func (s *scope) childSucceeded(before *skeinv1.ThreadStatus) bool {
	after := &s.object.Status
	return after.Parent != "" && endedSince(before.LastRun, after.LastRun) && after.LastRun.Outcome == skeinv1.RunSucceeded &&
		meta.IsStatusConditionTrue(after.Conditions, skeinv1.ConditionReady) &&
		(after.TerminatedAt == 0 || s.row != nil && s.row.TerminatedReason == skeinv1.ReasonSessionEnded)
}

func (r *Reconciler) lastRun(ctx context.Context, s *scope) (*store.Run, error) {
	if s.row == nil {
		return nil, nil
	}
	run, err := r.Threads.Store().Run(ctx, s.row.ID, "")
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last run: %w", err)
	}
	return run, nil
}

// afterEnd reads the stored thread again when its run has ended meanwhile. A run ends together with what it does to its thread,
// for example with the termination of a child, and one status shows both.
func (r *Reconciler) afterEnd(ctx context.Context, s *scope, run *store.Run) error {
	if run == nil || !endedSince(s.object.Status.LastRun, runStatus(run)) {
		return nil
	}
	return store.IgnoreNotFound(r.reload(ctx, s))
}

// compute is the only function that makes a Thread's status.
func (s *scope) compute(run *store.Run, children family, failed error, at time.Time) {
	o, status := s.object, &s.object.Status
	w := conditions.Writer{List: &status.Conditions, Generation: o.Generation, Now: at}
	s.computeReady(w, failed)
	if failed != nil && s.row == nil && status.Phase != "" {
		return // nothing was read, so nothing else is known to have changed
	}
	if failed == nil { // otherwise the stored thread may not be as the spec says yet: see specApplied
		status.ObservedGeneration = o.Generation
	}
	if s.row != nil && failed == nil || o.Spec.ThreadID == "" { // otherwise spec.threadID may name a thread of another object
		status.ThreadID = o.ThreadID()
	}
	status.Phase = phaseOf(s.row, run)
	status.LastRun = runStatus(run)
	status.ChildCount, status.ChildCounts, status.Children = children.count, children.counts, children.children
	if row := s.row; row != nil {
		status.Agent = row.Agent
		status.OriginAgent = row.OriginAgent
		status.Messages = row.Messages
		status.QueuedMessages = row.Queued
		status.TerminatedAt = row.TerminatedAt
		if row.DestroyedAt != 0 {
			status.Destroyed = &skeinv1.DestroyedStatus{Time: *timeOf(row.DestroyedAt), Reason: row.DestroyedReason}
		}
		status.LastActivityTime = timeOf(row.LastActivityAt)
		status.Parent = s.parent
	}
	computeExecuting(w, s.row, run)
	computeTerminated(w, s.row)
}

func (s *scope) computeReady(w conditions.Writer, failed error) {
	switch {
	case failed != nil && wasRefused(s.object): // the record that the parent was told, which no error takes back
	case failed != nil:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInternalError, conditions.Failure(failed))
	case s.problem != nil:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, s.problem.reason, s.problem.message)
	default:
		w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	}
}

func computeExecuting(w conditions.Writer, row *store.Thread, run *store.Run) {
	switch {
	case waitsForQuota(row, run):
		w.Set(skeinv1.ConditionExecuting, metav1.ConditionFalse, skeinv1.ReasonWaitingForQuota, row.Waits)
	case row == nil || row.TerminatedAt != 0 || run == nil || run.Status.Ended():
		w.Set(skeinv1.ConditionExecuting, metav1.ConditionFalse, skeinv1.ReasonIdle, "")
	case run.Status == store.RunWaiting && run.Reason != "":
		w.Set(skeinv1.ConditionExecuting, metav1.ConditionTrue, run.Reason, engine.ShownMessage(run))
	case run.Status == store.RunWaiting:
		w.Set(skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonWaitingForChild, "")
	default:
		w.Set(skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonRunning, "")
	}
}

// waitsForQuota reports whether a thread has something to do and waits for room in a quota of its namespace (K8S-11).
func waitsForQuota(row *store.Thread, run *store.Run) bool {
	return row != nil && row.Waits != "" && row.TerminatedAt == 0 && (row.Queued > 0 || run != nil && !run.Status.Ended())
}

func computeTerminated(w conditions.Writer, row *store.Thread) {
	if row == nil || row.TerminatedAt == 0 {
		w.Set(skeinv1.ConditionTerminated, metav1.ConditionFalse, skeinv1.ReasonActive, "")
		return
	}
	reason := row.TerminatedReason
	if reason == "" {
		reason = skeinv1.ReasonTerminatedByRequest
	}
	w.Set(skeinv1.ConditionTerminated, metav1.ConditionTrue, reason, "")
}

func phaseOf(row *store.Thread, run *store.Run) string {
	switch {
	case row == nil:
		return phasePending
	case row.TerminatedAt != 0:
		return phaseTerminated
	case (run == nil || run.Status.Ended()) && row.Parked && row.Queued > 0:
		return phaseParked
	case waitsForQuota(row, run):
		return phaseWaiting
	case run == nil || run.Status.Ended():
		return phaseIdle
	case run.Status == store.RunWaiting:
		return phaseWaiting
	default:
		return phaseRunning
	}
}

func runStatus(run *store.Run) *skeinv1.RunStatus {
	if run == nil {
		return nil
	}
	return &skeinv1.RunStatus{
		ID:             run.ID,
		Outcome:        outcome(run.Status),
		Steps:          int32(min(run.Steps, 1<<30)),
		StartTime:      timeOf(run.StartedAt),
		CompletionTime: timeOf(run.EndedAt),
		Reason:         run.Reason,
		Message:        engine.ShownMessage(run),
	}
}

func outcome(s store.RunStatus) skeinv1.RunOutcome {
	switch s {
	case store.RunSucceeded:
		return skeinv1.RunSucceeded
	case store.RunFailed:
		return skeinv1.RunFailed
	case store.RunStopped:
		return skeinv1.RunStopped
	case store.RunTerminated:
		return skeinv1.RunTerminated
	}
	return ""
}

// timeOf returns a time in whole seconds, the precision that the API server keeps, or nil for 0.
func timeOf(micros int64) *metav1.Time {
	if micros == 0 {
		return nil
	}
	t := metav1.Unix(micros/1e6, 0)
	return &t
}
