package scheduledeffect

import (
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// OwnerLeft is the predicate of updates that take an owner reference away.
var OwnerLeft = ownerLeft

// ByDueTime returns what enqueues ScheduledEffects.
func (r *Reconciler) ByDueTime() handler.EventHandler { return r.byDueTime() }

// ByThread returns what notes the events of Threads, and enqueues with another handler.
func (r *Reconciler) ByThread(enqueue handler.EventHandler) handler.EventHandler {
	return r.byThread(enqueue)
}

// Notifications returns the source of what changes in the store.
func (r *Reconciler) Notifications() source.Source { return r.notifications }

// Unowned returns how many effects it remembers the Threads of.
func (r *Reconciler) Unowned() int {
	r.unowned.mu.Lock()
	defer r.unowned.mu.Unlock()
	return len(r.unowned.all)
}
