package subagent

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// findParent finds the parent's object and its stored thread.
func (r *Reconciler) findParent(ctx context.Context, s *scope) error {
	name := s.object.Spec.ParentRef.Name
	var parent skeinv1.Thread
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, &parent, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Thread %q does not exist in namespace %q: create it, or delete this Subagent", name, s.object.Namespace)}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Thread %q: %w", name, err)
	}
	s.parent = &parent
	row, err := r.Store.Thread(ctx, parent.ThreadID())
	if errors.Is(err, store.ErrNotFound) || (err == nil && !row.BelongsTo(string(parent.UID))) {
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Thread %q is not stored yet", name)}
		s.leaves = deletesChildren(&parent)
		return nil
	}
	s.parentRow = row
	return err
}

// ensureOwner makes the parent Thread the owner of a Subagent that a person declared (metadata, never spec: K8S-03). The
// Subagents that the engine creates have the owner already.
func (r *Reconciler) ensureOwner(ctx context.Context, s *scope) error {
	if metav1.IsControlledBy(s.object, s.parent) || !s.parent.DeletionTimestamp.IsZero() {
		return nil // a parent that is being deleted also deletes what it owns, or leaves it (--cascade=orphan)
	}
	owner := metav1.GetControllerOf(s.object)
	if owner != nil && owner.Kind == "Thread" && owner.Name == s.parent.Name {
		s.problem = earlierParent(s.parent)
		return nil
	}
	if owner != nil {
		s.problem = &problem{skeinv1.ReasonInvalidSpec,
			fmt.Sprintf("it is owned by %s %q, so it cannot be a child of Thread %q: remove that owner reference", owner.Kind, owner.Name, s.parent.Name)}
		return nil
	}
	if goes, err := r.parentGoes(ctx, s.parent); goes || err != nil {
		return err
	}
	if another, err := r.belongsToEarlier(ctx, s); another || err != nil {
		s.problem = earlierParent(s.parent)
		return err
	}
	before := s.object.DeepCopy()
	s.object.OwnerReferences = append(s.object.OwnerReferences, objects.ThreadOwner(s.parent.Name, string(s.parent.UID)))
	if s.object.Labels == nil {
		s.object.Labels = map[string]string{}
	}
	s.object.Labels[skeinv1.LabelThreadID] = s.parent.ThreadID()
	// The optimistic lock keeps an owner reference that another client added meanwhile.
	if err := r.Client.Patch(ctx, s.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("make the parent Thread the owner: %w", err)
	}
	return nil
}

// earlierParent returns the problem of a Subagent whose parent was another Thread, which had the name of this one before.
func earlierParent(parent *skeinv1.Thread) *problem {
	return &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
		"its parent was an earlier Thread %q, which was deleted; the present Thread of that name is another one. Delete this Subagent, or leave it: its child works on without a parent", parent.Name)}
}

// belongsToEarlier reports whether the child of a Subagent that has no owner belongs to another stored thread than the parent: to an
// earlier one of that name, which was deleted with --cascade=orphan. A new Thread of the same name must not get its children, nor what they
// were told. Data that the parent has adopted keeps its children. It goes by the parent of the task, or else by that of the stored child. Where
// these are purged, it goes by the label with the id of the parent's thread.
func (r *Reconciler) belongsToEarlier(ctx context.Context, s *scope) (bool, error) {
	another := s.object.Labels[skeinv1.LabelThreadID] != s.parent.ThreadID() // what is left to go by once all else is purged
	if ref := s.object.Spec.TaskRef; ref != "" {
		task, _, err := r.Store.ChildTask(ctx, ref)
		if errors.Is(err, store.ErrNotFound) {
			return another, nil
		}
		return err == nil && task.ParentID != s.parentRow.ID, err
	}
	id := ""
	if wasMade(s.object) {
		id = s.object.Status.Entry.ThreadID
	} else {
		var child skeinv1.Thread
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: kube.ChildThreadName(s.object)}, &child, client.UnsafeDisableDeepCopy)
		if err != nil || !metav1.IsControlledBy(&child, s.object) {
			return false, client.IgnoreNotFound(err)
		}
		id = child.ThreadID()
	}
	row, err := r.Store.Thread(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return another && wasMade(s.object), nil // one that is not stored yet goes to the parent that there is
	}
	return err == nil && row.ParentID != "" && row.ParentID != s.parentRow.ID, err
}

// parentGoes asks the API server whether a parent is being deleted. With --cascade=orphan, the removal of the owner
// reference may become visible before the deletion of the parent. Adding the reference again would delete the
// Subagent with the parent.
func (r *Reconciler) parentGoes(ctx context.Context, parent *skeinv1.Thread) (bool, error) {
	var now skeinv1.Thread
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(parent), &now)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Thread %q: %w", parent.Name, err)
	}
	return err != nil || now.UID != parent.UID || !now.DeletionTimestamp.IsZero(), nil
}
