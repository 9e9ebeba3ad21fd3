package subagent

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
)

// childTurned is threadTurned for child Threads that Subagents own. It drops their creations, which this controller makes itself, and after
// which it looks at them at once.
func childTurned() predicate.Predicate {
	p := threadTurned()
	p.CreateFunc = func(event.CreateEvent) bool { return false }
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
