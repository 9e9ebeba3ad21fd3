package scheduledeffect

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
)

// Priorities in the workqueue. Due effects pass everything else that waits for a worker, such as the thousands of
// objects that a start of the manager, or a busy hour, enqueues.
const (
	duePriority  = 100
	restPriority = handler.LowPriority
)

// soon is how near a due time must be for its object to take precedence.
const soon = time.Minute

// byDueTime enqueues ScheduledEffects, those that are due soon first.
func (r *Reconciler) byDueTime() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { r.enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { r.enqueue(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if s, ok := e.Object.(*skeinv1.ScheduledEffect); ok && (!oneTime(s) || s.Status.CompletionTime == nil) {
				r.deleted.add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}, deletion{string(s.UID), oneTime(s)})
			}
			r.enqueue(e.Object, q)
		},
	}
}

func (r *Reconciler) enqueue(o client.Object, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
	pq, ok := q.(priorityqueue.PriorityQueue[ctrl.Request])
	if !ok {
		q.Add(req)
		return
	}
	pq.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(r.priority(o))}, req)
}

func (r *Reconciler) priority(o client.Object) int {
	s, ok := o.(*skeinv1.ScheduledEffect)
	if ok && s.Status.CompletionTime == nil && kube.DueTime(s).Sub(r.Clock.Now()) < soon {
		return duePriority
	}
	return restPriority
}

// dueQueue is the workqueue of the controller, once that has started.
type dueQueue struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

func (q *dueQueue) use(queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = queue
}

// wake reconciles an object after a time, or sooner if it waits for less. The workqueue has one entry of an object, with the highest
// priority that it was added with. So an object that is due much later gets no priority, because its retries until then would take
// precedence too.
func (q *dueQueue) wake(req ctrl.Request, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch queue := q.queue.(type) {
	case nil:
	case priorityqueue.PriorityQueue[ctrl.Request]:
		priority := restPriority
		if after < soon {
			priority = duePriority
		}
		queue.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: &priority}, req)
	default:
		queue.AddAfter(req, after)
	}
}

// wakeWhenDue reconciles an object whose reconcile failed at its next due time at the latest. Otherwise the due time would wait for the
// backoff of the error, which may have nothing to do with it.
func (r *Reconciler) wakeWhenDue(s *scope) {
	now := r.Clock.Now()
	var due time.Time
	switch d := s.schedule; {
	case d != nil && d.plan != nil:
		if due = d.plan.Next(now.Add(-d.jitter)); !due.IsZero() {
			due = due.Add(d.jitter)
		}
	case s.object.UID != "" && isPlanned(s.object):
		due = kube.DueTime(s.object)
	}
	if due.After(now) && !s.gone && s.object.Status.CompletionTime == nil {
		r.queue.wake(s.req, due.Sub(now))
	}
}
