package modellimit

import (
	"sync"

	"github.com/skein-dev/skein/internal/model"
)

// maxWaiting is how many calls of a Model wait for their turn in this process. Beyond that, calls that have a Deferral are
// deferred. It is enough to have a call ready whenever a permit is returned.
const maxWaiting = 32

// waitQueue has the calls of one Model that wait in this process.
type waitQueue struct {
	first chan struct{} // has a value of the first waiting call; Go serves waiting senders in their order
	freed chan struct{} // receives a value when a call of this process has returned its permit

	mu           sync.Mutex
	waiting      int               // calls that wait for their turn
	deferred     []*model.Deferral // calls that were deferred, in order
	deferredKeys map[string]bool   // keys of the calls in deferred
}

func newWaitQueue() *waitQueue {
	return &waitQueue{first: make(chan struct{}, 1), freed: make(chan struct{}, 1), deferredKeys: map[string]bool{}}
}

// enter takes a place in the queue and returns true. If the queue is full and deferral is not nil, it adds the call to those that
// are deferred and returns false.
func (q *waitQueue) enter(deferral *model.Deferral, maxWaiting int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if deferral != nil && q.waiting >= maxWaiting {
		deferral.Full = func() bool { return q.full(maxWaiting) }
		if !q.deferredKeys[deferral.Key] {
			q.deferredKeys[deferral.Key] = true
			q.deferred = append(q.deferred, deferral)
		}
		return false
	}
	q.waiting++
	return true
}

// full reports whether the queue has as many calls as it may.
func (q *waitQueue) full(maxWaiting int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting >= maxWaiting
}

// leave gives up a place in the queue and resumes the first of the deferred calls. If less than half of the places are taken, it
// resumes two, because a caller that is resumed may not call again.
func (q *waitQueue) leave(maxWaiting int) {
	q.mu.Lock()
	q.waiting--
	n := 1
	if q.waiting < maxWaiting/2 {
		n = 2
	}
	n = min(n, len(q.deferred))
	resumed := q.deferred[:n:n]
	if q.deferred = q.deferred[n:]; len(q.deferred) == 0 {
		q.deferred = nil // frees the array, which may have grown large
	}
	for _, d := range resumed {
		delete(q.deferredKeys, d.Key)
	}
	q.mu.Unlock()
	for _, d := range resumed {
		d.Resume()
	}
}
