package watches

import (
	"container/heap"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// promotedPriority is that of requests whose turn has come although others would pass them.
const promotedPriority = ChangedPriority + 1

// passersOfNormal and passersOfDependent are after how many requests that pass those of a priority one of these has its turn.
const (
	passersOfNormal    = 4
	passersOfDependent = 16
)

// turns sees to it that requests which others may pass begin all the same. It knows all that wait with NormalPriority and
// DependentPriority. Each time that several of a higher priority have begun, the oldest of a namespace has its turn. Namespaces take
// turns.
//
// Requests with MissedPriority get none: nobody waits for them, and after a start there are as many as there are objects.
type turns struct {
	classes [2]*passedClass
	waits   map[ctrl.Request]*passedRequest
}

// passedClass are the waiting requests of one priority.
type passedClass struct {
	priority, passers int
	passed            int // by so many since the last turn, up to passers
	waiting           map[string]*readyFirst
	namespaces        []string // of waiting, the next one first
}

// passedRequest is a request that waits. at is its place in its heap, and negative once it had its turn.
type passedRequest struct {
	ctrl.Request
	class *passedClass
	ready time.Time
	at    int
}

func newTurns() turns {
	class := func(priority, passers int) *passedClass {
		return &passedClass{priority: priority, passers: passers, waiting: map[string]*readyFirst{}}
	}
	return turns{
		classes: [2]*passedClass{class(NormalPriority, passersOfNormal), class(DependentPriority, passersOfDependent)},
		waits:   map[ctrl.Request]*passedRequest{},
	}
}

// add notes a request that waits from a time on. If it waits already, the higher priority and the earlier time count, as in the queue.
func (t *turns) add(r ctrl.Request, priority int, ready time.Time) {
	for _, c := range t.classes {
		if c.priority != priority {
			continue
		}
		switch w := t.waits[r]; {
		case w == nil:
			w = &passedRequest{Request: r, class: c, ready: ready}
			t.waits[r] = w
			c.push(w)
		case w.at < 0: // it had its turn
		default:
			w.class.remove(w)
			if ready.Before(w.ready) {
				w.ready = ready
			}
			if c.priority > w.class.priority {
				w.class = c
			}
			w.class.push(w)
		}
	}
}

// begin notes that a request with a priority begins. It returns the requests whose turn has come, and the priority with which the request
// was added before it had its own turn.
func (t *turns) begin(r ctrl.Request, priority int, now time.Time) (next []ctrl.Request, added int) {
	if w := t.waits[r]; w != nil {
		delete(t.waits, r)
		if w.at >= 0 {
			w.class.remove(w)
		}
		if priority == promotedPriority {
			priority = w.class.priority
		}
	}
	for _, c := range t.classes {
		if priority <= c.priority {
			continue
		}
		c.passed = min(c.passed+1, c.passers)
		if c.passed < c.passers {
			continue
		}
		if w := c.pop(now); w != nil {
			c.passed = 0
			next = append(next, w.Request)
		}
	}
	return next, priority
}

func (c *passedClass) push(w *passedRequest) {
	of := c.waiting[w.Namespace]
	if of == nil {
		of = &readyFirst{}
		c.waiting[w.Namespace] = of
		c.namespaces = append(c.namespaces, w.Namespace)
	}
	heap.Push(of, w)
}

// remove removes a request that waits. Its namespace is forgotten when its turn comes, if nothing else of it waits.
func (c *passedClass) remove(w *passedRequest) { heap.Remove(c.waiting[w.Namespace], w.at) }

// pop removes the oldest request of the next namespace that has one, or returns nil.
func (c *passedClass) pop(now time.Time) *passedRequest {
	for range len(c.namespaces) {
		ns := c.namespaces[0]
		c.namespaces = c.namespaces[1:]
		of := c.waiting[ns]
		if len(*of) == 0 {
			delete(c.waiting, ns)
			continue
		}
		c.namespaces = append(c.namespaces, ns)
		if first := (*of)[0]; !first.ready.After(now) {
			return heap.Pop(of).(*passedRequest)
		}
	}
	return nil
}

// readyFirst is a heap of requests, those that are ready first at its top.
type readyFirst []*passedRequest

// Len implements heap.Interface.
func (h readyFirst) Len() int { return len(h) }

// Less implements heap.Interface.
func (h readyFirst) Less(i, j int) bool { return h[i].ready.Before(h[j].ready) }

// Swap implements heap.Interface.
func (h readyFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *readyFirst) Push(w any) {
	added := w.(*passedRequest)
	added.at = len(*h)
	*h = append(*h, added)
}

// Pop implements heap.Interface.
func (h *readyFirst) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.at = -1
	return w
}
