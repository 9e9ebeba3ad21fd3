package subagent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// expire removes a Subagent whose child has ended for good, with its Thread, once spec.ttlAfterFinished is over. Until then
// it returns when that is. The finalizer of the Thread purges or keeps the conversation. A Subagent with a problem stays, such as
// one that its parent left behind: the child may not have been read, and then nothing would mark its conversation to be kept.
func (r *Reconciler) expire(ctx context.Context, s *scope) (ctrl.Result, error) {
	ttl := s.object.Spec.TTLAfterFinished
	if ttl == nil || s.problem != nil {
		return ctrl.Result{}, nil
	}
	ended, at := s.endedAt()
	if !ended {
		return ctrl.Result{}, nil
	}
	if left := at.Add(ttl.Duration).Sub(r.Clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if s.object.Spec.Retain == skeinv1.ChildKeep && s.child != nil && s.child.Annotations[skeinv1.AnnotationRetain] != "true" {
		before := s.child.DeepCopy()
		child := s.child.DeepCopy()
		if child.Annotations == nil {
			child.Annotations = map[string]string{}
		}
		child.Annotations[skeinv1.AnnotationRetain] = "true"
		if err := r.Client.Patch(ctx, child, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("keep the conversation of the child: %w", err)
		}
	}
	err := r.Client.Delete(ctx, s.object, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &s.object.UID})
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("remove a finished Subagent: %w", err)
	}
	return ctrl.Result{}, nil
}

// isExpired reports whether the child is known to have ended for good, and spec.ttlAfterFinished is over. A refusal is no such end: the
// status is the record of it.
func (s *scope) isExpired(at time.Time) bool {
	if s.row == nil || s.refused != "" || s.problem != nil || s.object.Spec.TTLAfterFinished == nil {
		return false
	}
	ended, since := s.endedAt()
	return ended && !since.Add(s.object.Spec.TTLAfterFinished.Duration).After(at)
}

// endedAt reports whether and since when the child has ended for good.
func (s *scope) endedAt() (bool, time.Time) {
	if s.row != nil {
		return s.row.TerminatedAt != 0, time.UnixMicro(s.row.TerminatedAt)
	}
	c := meta.FindStatusCondition(s.object.Status.Conditions, skeinv1.ConditionTerminated)
	if c == nil || c.Status != metav1.ConditionTrue {
		return false, time.Time{}
	}
	return true, c.LastTransitionTime.Time
}
