package subagent

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
)

// childTurned is threadTurned for child Threads that Subagents own. It drops the creations that this controller has just made itself, after
// which it looks at the Subagent at once. A child that has a status was made earlier, and the cache may have shown its Subagent alone until now:
// then the status of the Subagent says that the child was deleted.
func childTurned() predicate.Predicate {
	p := threadTurned()
	p.CreateFunc = func(e event.CreateEvent) bool {
		t, ok := e.Object.(*skeinv1.Thread)
		return ok && (t.Status.ThreadID != "" || meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionReady) != nil)
	}
	return p
}

// threadTurned passes creations and deletions of Threads, and updates of a Thread, parent or child, that a Subagent depends on.
func threadTurned() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*skeinv1.Thread)
		after, ok2 := e.ObjectNew.(*skeinv1.Thread)
		return ok1 && ok2 && (before.Status.ThreadID != after.Status.ThreadID ||
			before.Status.TerminatedAt != after.Status.TerminatedAt ||
			conditions.ReadyChanged(before.Status.Conditions, after.Status.Conditions))
	}}
}
