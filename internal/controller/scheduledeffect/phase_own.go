package scheduledeffect

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// isBrief reports whether a person declared an effect of one time that is due soon and has no status yet. To save writes, such an effect
// gets neither an owner reference nor a status before its end. An effect that is older than its Thread does get them: its owner reference
// then says at once to which Thread of that name it belongs.
func (s *scope) isBrief() bool {
	o := s.object
	if s.thread != nil && s.thread.CreationTimestamp.After(o.CreationTimestamp.Time) {
		return false
	}
	return oneTime(o) && o.Spec.At != nil && scheduledBy(o) == "" && !s.told && kube.DueTime(o).Sub(s.at) < underWayFor
}

// ensureOwner makes the Thread the owner of an effect that a person declared (metadata, never spec: K8S-03). An effect that has fired belongs to the
// Thread that it fired for.
func (r *Reconciler) ensureOwner(ctx context.Context, s *scope) (bool, error) {
	if metav1.GetControllerOf(s.object) != nil {
		r.unowned.forget(s.req) // also when the answer to the write of the owner reference was lost
		return false, nil
	}
	if s.thread == nil || !s.thread.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if s.firing != nil && s.firing.ThreadID != s.thread.ThreadID() {
		return false, nil
	}
	brief := s.isBrief()
	if brief || !s.owned() {
		// Until the owner reference stands, this says to which Thread of the name the effect belongs.
		if err := r.remember(ctx, s); err != nil {
			return false, err
		}
	}
	if brief {
		return false, nil
	}
	if goes, err := r.threadGoes(ctx, s.thread); goes || err != nil {
		return false, err
	}
	before := s.object.DeepCopy()
	s.object.OwnerReferences = append(s.object.OwnerReferences, objects.ThreadOwner(s.thread.Name, string(s.thread.UID)))
	if s.object.Labels == nil {
		s.object.Labels = map[string]string{}
	}
	s.object.Labels[skeinv1.LabelThreadID] = s.thread.ThreadID()
	// The optimistic lock keeps an owner reference that another client added meanwhile.
	if err := r.Client.Patch(ctx, s.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("make the Thread the owner: %w", err)
	}
	r.unowned.forget(s.req)
	return false, nil
}

// owned reports whether the Thread was the owner of the effect before: its label says so. The reference was taken away, as --cascade=orphan
// does, and then the effect does not go with the Thread.
func (s *scope) owned() bool {
	return s.object.Labels[skeinv1.LabelThreadID] == s.thread.ThreadID()
}

// remember notes the Thread of an effect that has no owner reference yet. An event of that Thread may have been handled since the Thread
// was read. The cache has a change before its event is handled, so that of a Thread that is unchanged there the events are still to come.
func (r *Reconciler) remember(ctx context.Context, s *scope) error {
	if !r.unowned.add(s.req, lent{effect: s.object.UID, thread: s.thread.UID}) {
		return nil
	}
	var now skeinv1.Thread
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(s.thread), &now, client.UnsafeDisableDeepCopy)
	if err != nil || now.UID != s.thread.UID || !now.DeletionTimestamp.IsZero() {
		r.unowned.forget(s.req)
	}
	return client.IgnoreNotFound(err)
}

// leavesDependents reports whether a Thread is being deleted without what it owns.
func leavesDependents(t *skeinv1.Thread) bool {
	return !t.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(t, metav1.FinalizerOrphanDependents)
}

// ownLasting makes the Thread the owner of an effect that was to be over soon, and is not: its status was written before its end.
func (r *Reconciler) ownLasting(ctx context.Context, s *scope) error {
	o := s.object
	if s.told && o.Status.CompletionTime != nil {
		r.unowned.forget(s.req) // it stays for its time to live, whatever becomes of its Thread
		return nil
	}
	if s.firing == nil && s.thread == nil || !s.told || metav1.GetControllerOf(o) != nil {
		return nil
	}
	if s.thread == nil { // one that has fired is only observed
		if _, err := r.findThread(ctx, s); err != nil || s.gone || s.waits {
			return err
		}
	}
	_, err := r.ensureOwner(ctx, s)
	return err
}

// threadGoes asks the API server whether a Thread is being deleted. With --cascade=orphan, the removal of the owner reference may
// become visible before the deletion of the Thread. Adding the reference again would delete the effect with the Thread.
func (r *Reconciler) threadGoes(ctx context.Context, t *skeinv1.Thread) (bool, error) {
	var now skeinv1.Thread
	err := r.live().Get(ctx, client.ObjectKeyFromObject(t), &now)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Thread %q: %w", t.Name, err)
	}
	return err != nil || now.UID != t.UID || !now.DeletionTimestamp.IsZero(), nil
}

// goWithThread deletes an effect whose Thread was deleted before it had an owner (EFF-06), as the garbage collector deletes those with one.
func (r *Reconciler) goWithThread(ctx context.Context, s *scope) error {
	s.gone = true
	if err := r.Client.Delete(ctx, s.object, client.Preconditions{UID: &s.object.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete a ScheduledEffect with its Thread: %w", err)
	}
	return nil
}
