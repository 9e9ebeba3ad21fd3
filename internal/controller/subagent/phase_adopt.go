package subagent

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// adopt makes the existing Thread that spec.threadRef names the child. The stored thread gets its parent first, because the
// store decides whether it may. The parent is told in the same transaction (MSG-09).
func (r *Reconciler) adopt(ctx context.Context, s *scope, child *skeinv1.Thread) error {
	if metav1.IsControlledBy(child, s.object) || !child.DeletionTimestamp.IsZero() {
		return nil
	}
	if owner := metav1.GetControllerOf(child); owner != nil {
		s.problem = &problem{skeinv1.ReasonInvalidSpec,
			fmt.Sprintf("Thread %q belongs to %s %q already: name a Thread without a parent in a new Subagent", child.Name, owner.Kind, owner.Name)}
		return nil
	}
	row, err := r.Store.Thread(ctx, child.ThreadID())
	if errors.Is(err, store.ErrNotFound) || (err == nil && !row.BelongsTo(string(child.UID))) {
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Thread %q is not stored yet", child.Name)}
		return nil
	}
	if err != nil {
		return err
	}
	if ref := s.object.Spec.AgentRef.Name; ref != "" && ref != row.Agent {
		s.problem = &problem{skeinv1.ReasonInvalidSpec,
			fmt.Sprintf("Thread %q runs the Agent %q, not %q: leave out spec.agentRef in a new Subagent", child.Name, row.Agent, ref)}
		return nil
	}
	if row.UserID != s.parentRow.UserID {
		s.problem = &problem{skeinv1.ReasonInvalidSpec,
			fmt.Sprintf("Thread %q has another user than Thread %q: name a Thread with the same spec.userID", child.Name, s.parent.Name)}
		return nil
	}
	if err := r.attach(ctx, s, row); s.problem != nil || err != nil {
		return err
	}
	before := child.DeepCopy()
	child.OwnerReferences = append(child.OwnerReferences, metav1.OwnerReference{
		APIVersion: skeinv1.GroupVersion.String(), Kind: "Subagent", Name: s.object.Name, UID: s.object.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	})
	// The optimistic lock keeps an owner reference that another client added meanwhile.
	if err := r.Client.Patch(ctx, child, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("make the Subagent the owner of Thread %q: %w", child.Name, err)
	}
	return nil
}

// attach gives the stored thread its parent.
func (r *Reconciler) attach(ctx context.Context, s *scope, row *store.Thread) error {
	spec := &s.object.Spec
	op := &store.Attach{
		ParentID: s.parentRow.ID, Reference: s.object.Name, Agent: row.Agent, RegistryStatus: statusOf,
		Child: store.Child{
			Name: spec.Name, Blocking: spec.Blocking, Resumable: spec.Resumable,
			ParentCommunication: string(spec.ParentCommunication), SpawnGroupID: spec.SpawnGroupID,
		},
	}
	told := thread.ChildStatusMessage(&store.Thread{ParentID: op.ParentID, Reference: op.Reference, Child: &op.Child}, thread.ChildAdopted, "")
	err := r.Store.Apply(ctx, row.ID, nil, op, told)
	why := ""
	switch {
	case errors.Is(err, store.ErrHasParent):
		why = "it is the child of another thread: name a Thread without a parent"
	case errors.Is(err, store.ErrCycle):
		why = fmt.Sprintf("Thread %q is below it: a thread cannot be its own ancestor", s.parent.Name)
	case errors.Is(err, store.ErrTerminated):
		why = "it, or the parent, is terminated"
	case errors.Is(err, store.ErrHasEnv):
		why = "variables were set on it, or on a thread below it: remove them, and set them on the parent"
	case err != nil:
		return fmt.Errorf("give Thread %q its parent: %w", row.Name, err)
	default:
		return nil
	}
	s.problem = &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf("Thread %q cannot become a child of Thread %q: %s", row.Name, s.parent.Name, why)}
	return nil
}

// statusOf returns the registry status of a thread that becomes a child, which may be at work.
func statusOf(last *store.Run) string {
	switch {
	case last == nil:
		return kube.ChildPending
	case last.Status.Ended():
		return kube.ChildCompleted
	default:
		return kube.ChildRunning
	}
}
