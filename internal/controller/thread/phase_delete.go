package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// delete ends a thread whose object is being deleted. It aborts the run at once, purges or keeps the stored data as
// spec.deletionPolicy says, and removes the finalizer. The data of descendants is purged before the thread's own.
// Nothing here waits for a run or a sandbox.
func (r *Reconciler) delete(ctx context.Context, s *scope) (bool, error) {
	if s.object.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if !controllerutil.ContainsFinalizer(s.object, skeinv1.Finalizer) {
		return true, nil
	}
	row, err := r.Threads.Store().Thread(ctx, idOfDeleted(s.object))
	switch {
	case err == nil && row.HeldBy(string(s.object.UID)):
		if wait, err := r.part(ctx, s, row); wait || err != nil {
			return true, err
		}
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return true, err
	} // else an earlier attempt purged or kept it, or it never belonged to this object
	r.notifications.Forget(s.req)
	r.statusLimit.Forget(s.req)
	return true, client.IgnoreNotFound(r.release(ctx, s))
}

// part ends the thread's work and purges or keeps its stored data. wait means that descendants must be purged first.
func (r *Reconciler) part(ctx context.Context, s *scope, row *store.Thread) (wait bool, err error) {
	r.Engine.Abort(ctx, row.ID, "the Thread object was deleted")
	if err := r.tellParent(ctx, row); err != nil {
		return false, err
	}
	if retains(s.object) {
		if err := r.Threads.Store().Apply(ctx, row.ID, nil, &store.Retain{}); err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, fmt.Errorf("keep what is stored of the thread: %w", err)
		}
	} else {
		if wait, err := r.descendants(ctx, s, row); wait || err != nil {
			return wait, err
		}
		if err := r.Threads.Purge(ctx, row.ID); err != nil {
			return false, fmt.Errorf("purge what is stored of the thread: %w", err)
		}
	}
	r.Sandboxes.Forget(row.ID)
	return false, nil
}

// retains reports whether the stored data of a Thread outlives it. The API server sets a default deletionPolicy, so
// an empty one could not be decoded. Then nothing is deleted.
func retains(o *skeinv1.Thread) bool {
	return o.Spec.DeletionPolicy == skeinv1.DeletionRetain || (o.Spec.DeletionPolicy == "" && o.Undecodable != "")
}

// tellParent answers a parent that waits for this child, because the child will not return a result any more.
func (r *Reconciler) tellParent(ctx context.Context, row *store.Thread) error {
	if row.ParentID == "" || row.Child == nil || kube.ChildEnded(row.RegistryStatus) || row.TerminatedReason == store.ReasonPurged {
		return nil // the parent knows already
	}
	if err := r.childStatus(ctx, row, kube.ChildTerminated); err != nil || !row.Child.Blocking {
		return err
	}
	return r.childResult(ctx, row.ParentID, store.ChildResult{
		Reference:  row.Reference,
		ThreadID:   row.ID,
		Name:       row.Child.Name,
		ToolCallID: row.Child.ToolCallID,
		Status:     kube.ChildTerminated,
		Content:    "the child thread was deleted before it returned a result",
	})
}

// childStatus records in a parent's conversation how a child ended that could not report it itself (MSG-09).
func (r *Reconciler) childStatus(ctx context.Context, child *store.Thread, kind string) error {
	told := thread.ChildStatusMessage(child, kind, "")
	err := r.Threads.Store().Apply(ctx, told.To, nil, told)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// childResult queues a result on a parent once. A deleted or terminated parent needs none.
func (r *Reconciler) childResult(ctx context.Context, parentID string, result store.ChildResult) error {
	payload, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result of a child: %w", err)
	}
	err = r.Threads.Store().Apply(ctx, parentID, nil, &store.Enqueue{
		Item: store.InboxItem{
			Key:     "skein:child-ended:" + result.Reference,
			Kind:    store.InboxChildResult,
			Payload: payload,
		},
		IgnoreTerminated: true,
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
