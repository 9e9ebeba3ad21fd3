package scheduledeffect

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

// deleteLeftOver deletes an effect that a purged thread scheduled, and reports whether it did. The garbage collector does so through the owner
// reference, unless the Thread was deleted with --cascade=orphan, which takes that reference away. A Thread that takes the
// name later must not get the effect. An effect that a person declared stays: it names its Thread by name.
func (r *Reconciler) deleteLeftOver(ctx context.Context, s *scope) (bool, error) {
	id := scheduledBy(s.object)
	if id == "" {
		return false, nil
	}
	if ref := s.object.Spec.ThreadRef; ref != nil {
		var t skeinv1.Thread
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: ref.Name}, &t, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read Thread %q: %w", ref.Name, err)
		}
		if err == nil && t.ThreadID() == id {
			return false, nil
		}
	}
	if _, err := r.Store.Thread(ctx, id); !errors.Is(err, store.ErrNotFound) {
		return false, err // it is kept without an object, and may get one again
	}
	r.statusLimit.Forget(s.req)
	r.notifications.Forget(s.req)
	err := r.Client.Delete(ctx, s.object, client.Preconditions{UID: &s.object.UID})
	return true, client.IgnoreNotFound(err)
}

// scheduledBy returns the id of the thread whose run or client scheduled an effect; "" if a person declared it.
func scheduledBy(o *skeinv1.ScheduledEffect) string {
	if o.Annotations[skeinv1.AnnotationIdempotencyKey] == "" {
		return ""
	}
	return o.Labels[skeinv1.LabelThreadID]
}

// threadOf returns the UID of the Thread that owns an effect; "" if none does.
func threadOf(o *skeinv1.ScheduledEffect) types.UID {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "Thread" {
		return owner.UID
	}
	return ""
}

// findThread finds the thread for which the effect fires, and its row.
func (r *Reconciler) findThread(ctx context.Context, s *scope) (bool, error) {
	name := s.object.Spec.ThreadRef.Name // one-time effects without a thread do not come here
	var t skeinv1.Thread
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, &t, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) == nil {
		switch lost, handled := r.unowned.hasLostThread(s.req, lent{effect: s.object.UID, thread: t.UID}); {
		case handled:
			return true, r.goWithThread(ctx, s)
		case lost: // the event says whether the effect goes with its Thread, and causes another reconcile
			s.waits = true
			return true, nil
		}
	}
	if apierrors.IsNotFound(err) {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Thread %q does not exist in namespace %q: create it, or delete this ScheduledEffect", name, s.object.Namespace)}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Thread %q: %w", name, err)
	}
	if id := scheduledBy(s.object); id != "" && id != t.ThreadID() {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
			"thread %s, which scheduled this, has no Thread object any more, and Thread %q is another one: delete this ScheduledEffect, or give the data of that thread a Thread of this name", id, name)}
		return false, nil
	}
	// The garbage collector deletes the effects of a Thread a while after it. What is due meanwhile is not the younger Thread's.
	if owner := threadOf(s.object); owner != "" && owner != t.UID {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
			"the Thread of this ScheduledEffect was deleted, and Thread %q is another one: wait until the garbage collector has deleted this ScheduledEffect", name)}
		return false, nil
	}
	s.thread = &t
	row, err := r.Store.Thread(ctx, t.ThreadID())
	if errors.Is(err, store.ErrNotFound) || (err == nil && !row.BelongsTo(string(t.UID))) {
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Thread %q is not stored yet", name)}
		return false, nil
	}
	s.row = row
	return false, err
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
	s.problem = notReady("Effect", name, e.Status.Conditions)
	return false, nil
}

// notReady returns the problem of an object that needs a definition with these conditions; nil if the definition is Ready.
func notReady(kind, name string, of []metav1.Condition) *problem {
	switch c := conditions.Ready(of); c.Status {
	case metav1.ConditionTrue:
		return nil
	case metav1.ConditionFalse:
		return &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("%s %q is not ready: %s", kind, name, c.Message)}
	}
	return &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("%s %q has not been checked yet", kind, name)}
}
