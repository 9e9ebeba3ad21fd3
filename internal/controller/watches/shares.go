package watches

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// reservedPart is the part of the workers of a controller that is kept for namespaces of which nothing is reconciled: one worker in this
// many, and one at least.
const reservedPart = 4

// sharedQueue is the workqueue of a controller whose workers namespaces share. Without it the many objects of one namespace, or a few whose
// sources take long to compile, would keep the objects of all others waiting.
//
// What a namespace may not begin yet is set aside when a worker comes to it, and goes back into the queue once a worker has become free.
//
// Requests pass those of a lower priority, but not for ever: see turns.
type sharedQueue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	workers, reserved int

	mu    sync.Mutex
	turns turns
	busy  map[string]int    // reconciles under way, by namespace
	all   int               // the same of all namespaces
	aside map[string]*aside // by namespace
	owed  []string          // namespaces of which something is set aside
}

// aside is what of a namespace is set aside, in lists of which each is older first, by priority as in the queue. What passes everything else, such as
// effects that are due and requests whose turn has come, is in the first.
type aside struct {
	lists      [5][]ctrl.Request
	priorities map[ctrl.Request]int // of each request; it says in which list it is
}

// listOf returns the list for requests of a priority.
func listOf(priority int) int {
	switch {
	case priority > ChangedPriority:
		return 0
	case priority > NormalPriority:
		return 1
	case priority > DependentPriority:
		return 2
	case priority > MissedPriority:
		return 3
	}
	return 4
}

func (a *aside) add(request ctrl.Request, priority int) {
	before, there := a.priorities[request]
	if there && before >= priority {
		return
	}
	list := listOf(priority)
	if there && listOf(before) == list {
		a.priorities[request] = priority
		return
	}
	a.remove(request)
	a.priorities[request] = priority
	a.lists[list] = append(a.lists[list], request)
}

// remove removes a request, if it is there.
func (a *aside) remove(request ctrl.Request) {
	priority, there := a.priorities[request]
	if !there {
		return
	}
	delete(a.priorities, request)
	list := &a.lists[listOf(priority)]
	*list = slices.DeleteFunc(*list, func(r ctrl.Request) bool { return r == request })
}

// next removes the first request and returns it with its priority. There is one.
func (a *aside) next() (request ctrl.Request, priority int) {
	for list := range a.lists {
		if len(a.lists[list]) > 0 {
			request, a.lists[list] = a.lists[list][0], a.lists[list][1:]
			priority = a.priorities[request]
			delete(a.priorities, request)
			return request, priority
		}
	}
	panic("nothing is set aside") // the namespace would have no turn
}

// newSharedQueue returns the queue of a controller with this number of workers.
func newSharedQueue(name string, workers int, limiter workqueue.TypedRateLimiter[ctrl.Request]) *sharedQueue {
	q := &sharedQueue{workers: workers, turns: newTurns(), busy: map[string]int{}, aside: map[string]*aside{}}
	if workers > 1 {
		q.reserved = max(workers/reservedPart, 1)
	}
	q.PriorityQueue = priorityqueue.New(name, func(o *priorityqueue.Opts[ctrl.Request]) {
		o.Log, o.RateLimiter = ctrl.Log.WithValues("controller", name), limiter
	})
	return q
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *sharedQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	if o.After == 0 && !o.RateLimited {
		q.mu.Lock()
		for _, r := range requests {
			q.turns.add(r, ptr.Deref(o.Priority, NormalPriority))
		}
		q.mu.Unlock()
	}
	q.PriorityQueue.AddWithOpts(o, requests...)
}

// Add implements workqueue.TypedInterface.
func (q *sharedQueue) Add(request ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }

// GetWithPriority implements priorityqueue.PriorityQueue. It sets aside requests of namespaces that have their share of the workers. Done
// adds them again.
func (q *sharedQueue) GetWithPriority() (request ctrl.Request, priority int, shutdown bool) {
	for {
		request, priority, shutdown = q.PriorityQueue.GetWithPriority()
		if shutdown {
			return request, priority, shutdown
		}
		if added, ok := q.begin(request, priority); ok {
			return request, added, false
		}
		q.PriorityQueue.Done(request)
	}
}

// Get implements workqueue.TypedInterface.
func (q *sharedQueue) Get() (request ctrl.Request, shutdown bool) {
	request, _, shutdown = q.GetWithPriority()
	return request, shutdown
}

// Done implements workqueue.TypedInterface.
func (q *sharedQueue) Done(request ctrl.Request) {
	q.PriorityQueue.Done(request)
	if next, priority, some := q.finish(request.Namespace); some {
		q.PriorityQueue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, next)
	}
}

// mayBegin reports whether a namespace may begin a reconcile. The caller holds mu.
func (q *sharedQueue) mayBegin(namespace string) bool {
	return q.busy[namespace] == 0 || q.all < q.workers-q.reserved
}

// begin counts a reconcile, and returns the priority with which the request was added, and true. If the namespace may not begin one, it sets
// the request aside and returns false.
func (q *sharedQueue) begin(request ctrl.Request, priority int) (added int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ns := request.Namespace
	if q.mayBegin(ns) {
		q.busy[ns]++
		q.all++
		q.takeBack(request)
		added, next, some := q.turns.begin(request, priority)
		if some {
			q.PriorityQueue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(promotedPriority)}, next)
		}
		return added, true
	}
	if q.aside[ns] == nil {
		q.aside[ns] = &aside{priorities: map[ctrl.Request]int{}}
		q.owed = append(q.owed, ns)
	}
	q.aside[ns].add(request, priority)
	return 0, false
}

// takeBack removes a request that begins from what is set aside: it was added anew meanwhile. The caller holds mu.
func (q *sharedQueue) takeBack(request ctrl.Request) {
	a := q.aside[request.Namespace]
	if a == nil {
		return
	}
	a.remove(request)
	if len(a.priorities) == 0 {
		delete(q.aside, request.Namespace)
		q.owed = slices.DeleteFunc(q.owed, func(ns string) bool { return ns == request.Namespace })
	}
}

// finish counts the end of a reconcile. If a request that was set aside may begin now, finish removes it and returns it with some = true.
// Namespaces that have such requests take turns.
func (q *sharedQueue) finish(namespace string) (next ctrl.Request, priority int, some bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all--
	if q.busy[namespace]--; q.busy[namespace] == 0 {
		delete(q.busy, namespace)
	}
	i := slices.IndexFunc(q.owed, q.mayBegin)
	if i < 0 {
		return next, 0, false
	}
	ns := q.owed[i]
	q.owed = slices.Delete(q.owed, i, i+1)
	next, priority = q.aside[ns].next()
	if len(q.aside[ns].priorities) == 0 {
		delete(q.aside, ns)
	} else {
		q.owed = append(q.owed, ns)
	}
	return next, priority, true
}
