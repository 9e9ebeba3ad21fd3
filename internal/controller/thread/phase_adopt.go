package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// movedAtOnce is how many threads below an adopted one get their new root in one transaction.
const movedAtOnce = 500

// ensureOwned makes sure that the stored thread belongs to the object: it does already, or it is retained and the object
// adopts it (THR-09). A thread of another object is not examined, so that its existence in another namespace stays
// hidden.
func (r *Reconciler) ensureOwned(ctx context.Context, s *scope, row *store.Thread) (held bool, err error) {
	o := s.object
	switch {
	case row.BelongsTo(string(o.UID)):
		s.row = row
		return true, nil
	case row.Namespace != o.Namespace:
		s.problem = notRetained(o)
		return false, nil
	case row.RetainedAt == 0:
		s.problem = &problem{skeinv1.ReasonThreadInUse, fmt.Sprintf(
			"thread %s belongs to Thread %q: delete that one, with spec.deletionPolicy: Retain, and this Thread then adopts its data", row.ID, row.Name)}
		return false, nil
	case o.Spec.UserID != "" && o.Spec.UserID != row.UserID:
		s.problem = &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf(
			"spec.userID is %q, but thread %s is a conversation with another user: leave userID out, or name that user in a new Thread", o.Spec.UserID, row.ID)}
		return false, nil
	}
	if s.problem = differenceProblem(o, row); s.problem != nil {
		return false, nil
	}
	within, err := r.namespaces.UID(ctx, o.Namespace)
	if err != nil {
		return false, err
	}
	if !row.Within(within) {
		s.problem = notRetained(o)
		return false, nil
	}
	if err := r.takeName(ctx, o); err != nil {
		return false, err
	}
	for more := true; more; { // before the thread is adopted, so that this is repeated if it is interrupted
		moved, err := r.Threads.Store().AdoptBelow(ctx, row.ID, movedAtOnce)
		if err != nil {
			return false, err
		}
		more = moved == movedAtOnce
	}
	err = r.Threads.Store().Apply(ctx, row.ID, nil, &store.Adopt{
		NamespaceUID: within, ObjectUID: string(o.UID), Name: o.Name, Agent: o.Spec.AgentRef.Name, Title: o.Spec.Title,
	})
	if errors.Is(err, store.ErrNotRetained) || errors.Is(err, store.ErrNotFound) { // another object was faster, or it is being purged
		s.problem = notRetained(o)
		return false, nil
	}
	if errors.Is(err, store.ErrObjectDeleted) {
		return false, fmt.Errorf("adopt thread %s from an old copy of the object: %w", row.ID, err)
	}
	if err != nil {
		return false, fmt.Errorf("adopt thread %s: %w", row.ID, err)
	}
	said := ""
	if o.Spec.Message != "" {
		said = "; spec.message was not sent, because the conversation exists already"
	}
	r.Recorder.Eventf(o, nil, corev1.EventTypeNormal, skeinv1.ReasonAdopted, "Adopt", "the retained data of thread %s now belongs to this Thread%s", row.ID, said)
	s.row = row
	return true, r.reload(ctx, s)
}

// differenceProblem returns a problem when the object names a task or arguments that differ from the conversation's, which
// cannot change any more.
func differenceProblem(o *skeinv1.Thread, row *store.Thread) *problem {
	if o.Spec.TaskID != "" && o.Spec.TaskID != row.TaskID {
		return &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf(
			"spec.taskID is %q, but thread %s has the task %q: create the Thread without taskID, or with that one", o.Spec.TaskID, row.ID, row.TaskID)}
	}
	if a := o.Spec.Arguments; a != nil && len(a.Raw) > 0 && !sameJSON(a.Raw, row.Arguments) {
		return &problem{skeinv1.ReasonInvalidSpec, fmt.Sprintf(
			"spec.arguments differ from those that thread %s began with, which it keeps: create the Thread without arguments, or with those", row.ID)}
	}
	return nil
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return equality.Semantic.DeepEqual(x, y)
}

// notRetained returns the problem of an object that names data that it cannot adopt. It heals when the data is
// retained.
func notRetained(o *skeinv1.Thread) *problem {
	return &problem{skeinv1.ReasonThreadNotRetained, fmt.Sprintf(
		"namespace %q has no retained data of thread %s: `kubectl skein retained` lists the retained threads; create the Thread without spec.threadID for a new conversation",
		o.Namespace, o.Spec.ThreadID)}
}
