package thread

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/store"
)

// maxEventNote bounds the note of an Event. The API server accepts 1,024 bytes.
const maxEventNote = 1000

// recordEvents records Events for changes in a thread's life. Of runs it reports only failed ones, and of those only the
// newest when a status is written: an Event is a write to the API server, and a busy thread would flood it. That a child
// ended with its result is no news either, because each delegation ends so, nor that it ended with a parent that has an Event of its end.
func (r *Reconciler) recordEvents(ctx context.Context, s *scope, before *skeinv1.Thread) {
	after := s.object
	was, is := conditions.Ready(before.Status.Conditions), conditions.Ready(after.Status.Conditions)
	switch {
	case is.Status == metav1.ConditionFalse && (was.Status != is.Status || was.Reason != is.Reason):
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Check", "%s", is.Message)
	case is.Status == metav1.ConditionTrue && was.Status == metav1.ConditionFalse:
		r.Recorder.Eventf(after, nil, corev1.EventTypeNormal, skeinv1.ReasonReady, "Check", "the thread can be served now")
	}
	r.recordFailedRun(before.Status.LastRun, after)
	if was, is := before.Status.Agent, after.Status.Agent; was != is && was != "" && is != "" {
		r.Recorder.Eventf(after, nil, corev1.EventTypeNormal, skeinv1.ReasonHandedOver, "HandOver", "the conversation passed from Agent %s to Agent %s", was, is)
	}
	if d := after.Status.Destroyed; d != nil && (before.Status.Destroyed == nil || !before.Status.Destroyed.Time.Equal(&d.Time)) {
		r.Recorder.Eventf(after, nil, corev1.EventTypeNormal, skeinv1.ReasonDestroyed, "Destroy", "the conversation was cleared (%s); the thread remains usable", d.Reason)
	}
	if c := meta.FindStatusCondition(after.Status.Conditions, skeinv1.ConditionStatePersisted); c != nil && c.Status == metav1.ConditionFalse &&
		!meta.IsStatusConditionFalse(before.Status.Conditions, skeinv1.ConditionStatePersisted) {
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, c.Reason, "SaveState", "%s", c.Message)
	}
	if meta.IsStatusConditionTrue(after.Status.Conditions, skeinv1.ConditionTerminated) &&
		!meta.IsStatusConditionTrue(before.Status.Conditions, skeinv1.ConditionTerminated) {
		reason := meta.FindStatusCondition(after.Status.Conditions, skeinv1.ConditionTerminated).Reason
		if reason != skeinv1.ReasonSessionEnded && (reason != skeinv1.ReasonParentTerminated || !r.parentTells(ctx, s.row)) {
			r.Recorder.Eventf(after, nil, corev1.EventTypeNormal, skeinv1.ReasonTerminated, "Terminate", "the thread was terminated (%s) and takes no new work", reason)
		}
	}
}

// parentTells reports whether the Event of a parent speaks for a thread that ended with it. A parent that ended with its result has none,
// although that cut off the work of its children. When the parent cannot be read, the thread has an Event of its own: one too many says
// nothing wrong.
func (r *Reconciler) parentTells(ctx context.Context, row *store.Thread) bool {
	if row == nil || row.ParentID == "" {
		return false
	}
	parent, err := r.Threads.Store().Thread(ctx, row.ParentID)
	return err == nil && parent.TerminatedReason != skeinv1.ReasonSessionEnded
}

// recordFailedRun records an Event when the last run of a thread has failed.
func (r *Reconciler) recordFailedRun(before *skeinv1.RunStatus, after *skeinv1.Thread) {
	run := after.Status.LastRun
	if run == nil || run.Outcome != skeinv1.RunFailed || before != nil && before.ID == run.ID && before.Outcome == run.Outcome {
		return
	}
	reason := run.Reason
	if reason == "" {
		reason = skeinv1.ReasonRunFailed
	}
	note := "run " + run.ID + " failed"
	if run.Message != "" {
		note += ": " + run.Message
	}
	if len(note) > maxEventNote {
		note = strings.ToValidUTF8(note[:maxEventNote], "") + "…"
	}
	r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, reason, "Run", "%s", note)
}
