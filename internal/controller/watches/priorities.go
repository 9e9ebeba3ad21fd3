package watches

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Priorities of requests in the workqueue of a controller, highest first. Workers take the requests of one priority in the order in which
// they came (docs/adr/0003-thread-status-writes.md).
const (
	// ChangedPriority is for objects of which the store has something new to show, such as the end of a run. Clients wait for it.
	ChangedPriority = 10
	// NormalPriority is for objects that were created or changed. It is that of requests without a priority.
	NormalPriority = 0
	// DependentPriority is for objects that depend on a changed one, which may be thousands.
	DependentPriority = handler.LowPriority / 2
	// MissedPriority is for objects that may have changed without a notice: those that were there when the manager started, and those whose
	// notifications may be lost.
	MissedPriority = handler.LowPriority
)

// Dependents enqueues what another handler enqueues, with DependentPriority or less.
func Dependents(h handler.EventHandler) handler.EventHandler { return dependents{h} }

type dependents struct{ all handler.EventHandler }

type requestQueue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// Create implements handler.EventHandler.
func (d dependents) Create(ctx context.Context, e event.CreateEvent, q requestQueue) {
	d.all.Create(ctx, e, lowered(q))
}

// Update implements handler.EventHandler.
func (d dependents) Update(ctx context.Context, e event.UpdateEvent, q requestQueue) {
	d.all.Update(ctx, e, lowered(q))
}

// Delete implements handler.EventHandler.
func (d dependents) Delete(ctx context.Context, e event.DeleteEvent, q requestQueue) {
	d.all.Delete(ctx, e, lowered(q))
}

// Generic implements handler.EventHandler.
func (d dependents) Generic(ctx context.Context, e event.GenericEvent, q requestQueue) {
	d.all.Generic(ctx, e, lowered(q))
}

// lowered returns a queue that adds to q with DependentPriority or less. Without priorities it is q.
func lowered(q requestQueue) requestQueue {
	if pq, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		return loweredQueue{pq}
	}
	return q
}

type loweredQueue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
}

// Add implements workqueue.TypedInterface.
func (q loweredQueue) Add(r ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, r) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q loweredQueue) AddAfter(r ctrl.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, r)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q loweredQueue) AddRateLimited(r ctrl.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, r)
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q loweredQueue) AddWithOpts(o priorityqueue.AddOpts, rs ...ctrl.Request) {
	o.Priority = ptr.To(min(ptr.Deref(o.Priority, NormalPriority), DependentPriority))
	q.PriorityQueue.AddWithOpts(o, rs...)
}
