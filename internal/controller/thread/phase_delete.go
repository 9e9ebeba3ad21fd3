package thread

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/store"
)

// delete ends a thread whose object is being deleted. It aborts the run at once, purges or keeps the stored data as
// spec.deletionPolicy says, and removes the finalizer. The data of descendants is purged before the thread's own.
// Nothing here waits for a run or a sandbox.
func (r *Reconciler) delete(ctx context.Context, s *scope) (bool, error) {
	if s.object.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if _, done := r.released.Get(s.object.UID); done || !controllerutil.ContainsFinalizer(s.object, skeinv1.Finalizer) {
		return true, nil
	}
	r.foreground.note(s.object)
	// Another replica may be about to store the thread, from a copy of the object that is older than the deletion. From here on no
	// replica works on the thread either, although it may take long until the data of descendants is purged.
	// The mark of the Subagent keeps it from making this child again before its status says that there was one.
	var also []string
	if owner := metav1.GetControllerOf(s.object); owner != nil && owner.Kind == "Subagent" {
		also = append(also, string(owner.UID))
	}
	if err := r.Threads.Store().MarkDeleted(ctx, string(s.object.UID), idOfDeleted(s.object), also...); err != nil {
		return true, err
	}
	if err := r.cancelFiring(ctx, s.object); err != nil {
		return true, err
	}
	row, err := r.Threads.Store().Thread(ctx, idOfDeleted(s.object))
	switch {
	case err == nil && row.BelongsTo(string(s.object.UID)):
		if wait, err := r.purgeOrRetain(ctx, s, row); wait || err != nil {
			return true, err
		}
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return true, err
	} // else an earlier attempt purged or kept it, or it never belonged to this object
	if wait, err := r.awaitsObjects(ctx, s); wait || err != nil {
		return true, err
	}
	r.notifications.Forget(s.req)
	r.statusLimit.Forget(s.req)
	r.childWaits.forget(s.req)
	r.lostChildren.forget(s.req)
	if err := client.IgnoreNotFound(r.release(ctx, s)); err != nil {
		return true, err
	}
	r.released.Add(s.object.UID, true)
	r.foreground.threads.Remove(s.object.UID)
	return true, nil
}

// cancelFiring cancels the firing that made a Thread, unless it has ended. This records what the thread has cost so far, which is not
// known once its data is purged.
func (r *Reconciler) cancelFiring(ctx context.Context, o *skeinv1.Thread) error {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "ScheduledEffect" {
		return nil
	}
	var keys []store.FiringKey
	for _, due := range effectplan.DuesOf(owner.Name, o.Name) {
		keys = append(keys, store.FiringKey{EffectID: string(owner.UID), Due: due})
	}
	if _, err := r.Threads.Store().CancelFirings(ctx, effectplan.ThreadDeleted, keys...); err != nil {
		return fmt.Errorf("cancel the firing of a Thread that is deleted: %w", err)
	}
	return nil
}

// purgeOrRetain ends the thread's work and purges or keeps its stored data. wait means that descendants must be purged first.
func (r *Reconciler) purgeOrRetain(ctx context.Context, s *scope, row *store.Thread) (wait bool, err error) {
	abort := func() { r.Engine.Abort(ctx, row.ID, "the Thread object was deleted") }
	if !retainsData(s.object) {
		abort()
	}
	if !r.lostChildren.reported(s.req, s.object.UID) {
		if err := r.reportLost(ctx, row); err != nil {
			return false, err
		}
		r.lostChildren.report(s.req, s.object.UID)
	}
	if retainsData(s.object) {
		within, err := r.namespaces.UID(ctx, s.object.Namespace)
		if err != nil {
			return false, err
		}
		if err := r.Threads.Store().Apply(ctx, row.ID, nil, &store.Retain{NamespaceUID: within}); err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, fmt.Errorf("keep what is stored of the thread: %w", err)
		}
		abort() // not before, because the next run would begin with what waits
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

// retainsData reports whether the stored data of a Thread outlives it. The API server sets a default deletionPolicy, so
// an empty one could not be decoded. Then nothing is deleted.
func retainsData(o *skeinv1.Thread) bool {
	return o.Spec.DeletionPolicy == skeinv1.DeletionRetain || o.Annotations[skeinv1.AnnotationRetain] == "true" || (o.Spec.DeletionPolicy == "" && o.Undecodable != "")
}
