package thread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// fork creates the stored thread of an object with spec.forkFrom (REL-02). It returns a *problem while the origin is not
// there or does not have the message.
func (r *Reconciler) fork(ctx context.Context, o *skeinv1.Thread, n *thread.NewThread) (*store.Thread, error) {
	from := o.Spec.ForkFrom
	id, seq, err := forkPoint(o)
	if err != nil {
		return nil, err
	}
	origin, err := r.origin(ctx, o)
	if id != "" && (origin == nil && isMissing(err) || origin != nil && origin.ID != id) {
		return nil, lostForkPoint(from, "the thread that was to be forked has been deleted")
	}
	if err != nil {
		return nil, err
	}
	of := thread.ForkOf{ThreadID: origin.ID, MessageID: from.MessageID, Newest: from.MessageID == "" && from.MessageIndex == nil, Seq: seq}
	if from.MessageIndex != nil {
		of.Index = *from.MessageIndex
	}
	row, _, err := r.Threads.Fork(ctx, *n, of)
	switch {
	case errors.Is(err, store.ErrForkPoint) && id != "":
		return nil, lostForkPoint(from, "the message at which it was to be forked has been removed")
	case errors.Is(err, store.ErrForkPoint):
		return nil, noForkPoint(from, origin)
	case errors.Is(err, store.ErrForkSources) && id != "":
		return nil, &problem{skeinv1.ReasonForkPointLost, fmt.Sprintf("%v; then delete this Thread", err)}
	case errors.Is(err, store.ErrForkSources):
		return nil, &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf("spec.forkFrom: %v; then delete this Thread", err)}
	case errors.Is(err, store.ErrNotFound) && id != "":
		return nil, lostForkPoint(from, "the thread that was to be forked has been deleted")
	case errors.Is(err, store.ErrNotFound): // it was purged since it was read
		return nil, deletedOrigin(from)
	}
	return row, err
}

// forkPoint returns the thread and the message at which the runtime API was asked to fork; "" when the Thread was not made by it.
func forkPoint(o *skeinv1.Thread) (id string, seq int64, err error) {
	text := o.Annotations[skeinv1.AnnotationForkPoint]
	if text == "" {
		return "", 0, nil
	}
	id, number, _ := strings.Cut(text, "/")
	if seq, err = strconv.ParseInt(number, 10, 64); err != nil || id == "" || seq < 1 {
		return "", 0, &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf(
			"the annotation %s is not as the runtime API sets it: delete this Thread and create it without the annotation", skeinv1.AnnotationForkPoint)}
	}
	return id, seq, nil
}

// isMissing reports whether an error of origin says that there is no such Thread, or not for long.
func isMissing(err error) bool {
	var p *problem
	return errors.As(err, &p) && p.reason == skeinv1.ReasonReferenceNotFound
}

// lostForkPoint says that a fork cannot be made any more that a client has requested from the runtime API.
func lostForkPoint(from *skeinv1.ForkFrom, why string) *problem {
	return &problem{skeinv1.ReasonForkPointLost, fmt.Sprintf(
		"this fork of Thread %q was not made in time, because %s: delete this Thread and fork again", from.ThreadRef.Name, why)}
}

// origin returns the stored thread that an object is forked from, or a *problem.
func (r *Reconciler) origin(ctx context.Context, o *skeinv1.Thread) (*store.Thread, error) {
	name := o.Spec.ForkFrom.ThreadRef.Name
	var origin skeinv1.Thread
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: name}, &origin, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
			"Thread %q, which spec.forkFrom names, does not exist in namespace %q: create it, or delete this Thread and fork another one", name, o.Namespace)}
	}
	if err != nil {
		return nil, fmt.Errorf("read Thread %q: %w", name, err)
	}
	if !origin.DeletionTimestamp.IsZero() {
		return nil, deletedOrigin(o.Spec.ForkFrom)
	}
	row, err := r.Threads.Store().Thread(ctx, origin.ThreadID())
	if err == nil && row.BelongsTo(string(origin.UID)) {
		return row, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if circle := r.circle(ctx, o); circle != nil {
		return nil, &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf(
			"Threads are forked from one another in a circle (%s): delete one of them and create it without spec.forkFrom", strings.Join(circle, " from "))}
	}
	because := "it has no conversation yet"
	if c := conditions.Ready(origin.Status.Conditions); c.Message != "" {
		because = c.Message
	}
	return nil, &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Thread %q, which spec.forkFrom names, cannot be forked yet: %s", name, because)}
}

// maxCircle bounds how far a circle of forks is followed.
const maxCircle = 1000

// circle returns the names of the Threads that are forked from one another in a circle, the first one also last, or nil.
// It follows the origins of an object that are not stored.
func (r *Reconciler) circle(ctx context.Context, o *skeinv1.Thread) []string {
	names := []string{o.Name}
	for next := o; len(names) < maxCircle; {
		if next.Spec.ForkFrom == nil || next.Status.OriginThreadID != "" {
			return nil
		}
		name := next.Spec.ForkFrom.ThreadRef.Name
		if i := slices.Index(names, name); i >= 0 {
			return append(names[i:], name)
		}
		names = append(names, name)
		next = &skeinv1.Thread{}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: name}, next, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
	}
	return nil
}

func deletedOrigin(from *skeinv1.ForkFrom) *problem {
	return &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
		"Thread %q, which spec.forkFrom names, is being deleted: delete this Thread and fork another one", from.ThreadRef.Name)}
}

// noForkPoint says that the origin does not have the message. That may change, unless the origin was terminated.
func noForkPoint(from *skeinv1.ForkFrom, origin *store.Thread) *problem {
	wanted := "none"
	switch {
	case from.MessageID != "":
		wanted = fmt.Sprintf("none with the id %q", from.MessageID)
	case from.MessageIndex != nil:
		wanted = fmt.Sprintf("none with the index %d", *from.MessageIndex)
	}
	has := "no messages"
	if origin.Messages > 0 {
		has = fmt.Sprintf("messages with the indexes 0 to %d and %s", origin.Messages-1, wanted)
	}
	if origin.TerminatedAt != 0 {
		return &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf(
			"Thread %q, which spec.forkFrom names, was terminated and has %s: delete this Thread and fork at a message that exists", origin.Name, has)}
	}
	return &problem{skeinv1.ReasonReferenceNotFound, fmt.Sprintf(
		"Thread %q, which spec.forkFrom names, has %s: the fork is made when it has that message; to fork at another one, delete this Thread and create it again", origin.Name, has)}
}

// waitingForks maps a Thread to those that are to be forked from it and do not exist in the store yet.
func waitingForks(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		var list skeinv1.ThreadList
		err := reader.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{objects.IndexOrigin: o.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot find the forks of a changed Thread", "thread", o.GetName())
			return nil
		}
		var waiting []ctrl.Request
		for i := range list.Items {
			if list.Items[i].Status.OriginThreadID == "" {
				waiting = append(waiting, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return waiting
	}
}

// mayBeForked passes what may let a fork of a Thread be made, or changes why it is not.
func mayBeForked() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*skeinv1.Thread)
		after, ok2 := e.ObjectNew.(*skeinv1.Thread)
		return ok1 && ok2 && (before.Status.Messages != after.Status.Messages || before.Status.Phase != after.Status.Phase ||
			before.Status.TerminatedAt != after.Status.TerminatedAt || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			conditionDiffers(&before.Status, &after.Status, skeinv1.ConditionReady))
	}}
}
