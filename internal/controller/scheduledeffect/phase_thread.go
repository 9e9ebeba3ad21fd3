package scheduledeffect

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// findThread finds the thread for which the effect fires, and its row.
func (r *Reconciler) findThread(ctx context.Context, s *scope) (bool, error) {
	name := s.object.Spec.ThreadRef.Name // one-time effects without a thread do not come here
	var t skeinv1.Thread
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, &t, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Thread %q does not exist in namespace %q: create it, or delete this ScheduledEffect", name, s.object.Namespace)}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Thread %q: %w", name, err)
	}
	s.thread = &t
	row, err := r.Store.Thread(ctx, t.ThreadID())
	if errors.Is(err, store.ErrNotFound) || (err == nil && !row.HeldBy(string(t.UID))) {
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Thread %q is not stored yet", name)}
		return false, nil
	}
	s.row = row
	return false, err
}

// own makes the Thread the owner of an effect that a person declared (metadata, never spec: K8S-03).
func (r *Reconciler) own(ctx context.Context, s *scope) (bool, error) {
	if s.thread == nil || metav1.GetControllerOf(s.object) != nil || !s.thread.DeletionTimestamp.IsZero() {
		return false, nil
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
	return false, nil
}

// cancel ends an effect whose thread was terminated before it was due (EFF-06).
func (r *Reconciler) cancel(_ context.Context, s *scope) (bool, error) {
	if s.row == nil || s.row.TerminatedAt == 0 {
		return false, nil
	}
	s.canceled = true
	s.next = ttl(s.object)
	return true, nil
}

// findEffect requires that the Effect is Ready. Changes of its Ready condition are watched.
func (r *Reconciler) findEffect(ctx context.Context, s *scope) (bool, error) {
	if s.problem != nil {
		return false, nil
	}
	name := objects.EffectName(s.object.Spec.Effect)
	var e skeinv1.Effect
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, &e, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Effect %q does not exist in namespace %q: create it, or delete this ScheduledEffect", name, s.object.Namespace)}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Effect %q: %w", name, err)
	}
	switch c := conditions.Ready(e.Status.Conditions); c.Status {
	case metav1.ConditionTrue:
	case metav1.ConditionFalse:
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Effect %q is not ready: %s", name, c.Message)}
	default:
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Effect %q has not been checked yet", name)}
	}
	return false, nil
}
