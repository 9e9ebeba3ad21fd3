package controllertest

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Queue is the workqueue of an event handler's test. It records after which time each request is due, and hands out none.
type Queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	Due map[ctrl.Request]time.Duration
}

// NewQueue returns a Queue without requests.
func NewQueue() *Queue { return &Queue{Due: map[ctrl.Request]time.Duration{}} }

// Add records a request that is due at once.
func (q *Queue) Add(r ctrl.Request) { q.Due[r] = 0 }

// AddAfter records a request that is due later.
func (q *Queue) AddAfter(r ctrl.Request, after time.Duration) { q.Due[r] = after }
