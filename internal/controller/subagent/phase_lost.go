package subagent

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// reportLost tells the parent of a child that was refused, so that its call ends with an error. The status is the record of
// the refusal: it is written before the parent is told, and after a crash the parent is told again, which changes nothing.
func (r *Reconciler) reportLost(ctx context.Context, s *scope) error {
	c := meta.FindStatusCondition(s.object.Status.Conditions, skeinv1.ConditionTerminated)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != skeinv1.ReasonChildRefused || wasMade(s.object) {
		return nil // a child Thread that was refused tells the parent itself
	}
	s.refused = c.Message
	if err := r.Store.ReleaseChild(ctx, s.parentRow.ID, s.object.Name); err != nil {
		return fmt.Errorf("release the place of the child: %w", err)
	}
	spec := &s.object.Spec
	child := &store.Thread{ParentID: s.parentRow.ID, Reference: s.object.Name, Child: &store.Child{
		Name: spec.Name, Blocking: spec.Blocking, ParentCommunication: string(spec.ParentCommunication), ToolCallID: spec.ToolCallID,
	}}
	ops := thread.ChildLostOps(child, kube.ChildFailed, "the subagent could not be created: "+s.refused, thread.FirstReplies(child.Child))
	err := r.Store.Apply(ctx, s.parentRow.ID, nil, ops...)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrRetained) {
		return nil // there is no parent to tell
	}
	if err != nil {
		return fmt.Errorf("tell the parent that its child was refused: %w", err)
	}
	return nil
}
