// Package schedule decides which thread a replica works on next, and when: the workqueue, the fair division of workers between
// namespaces, the leases that keep other replicas out, and the timers of parked runs. It knows of threads by their ids only.
package schedule

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/skein-dev/skein/internal/engine/fairpool"
	"github.com/skein-dev/skein/internal/store"
)

const (
	firstRetry = 100 * time.Millisecond
	maxRetry   = 30 * time.Second
	// dispatchers is how many goroutines look threads up at once. It is more than one because a store may be far away.
	dispatchers = 4
	// maxNamespaces is the number of threads whose namespace is kept in memory, about 2 MB.
	maxNamespaces = 16384
)

// Options of a Queue.
type Options struct {
	Store store.Store
	Clock clock.WithTicker
	Log   logr.Logger
	// Workers is how many threads are worked on at once, NamespaceWorkers how many of one namespace (0 for no limit of its own).
	Workers, NamespaceWorkers int
}

// Queue is the workqueue of threads. A thread is in it at most once, and one worker at a time has it. Namespaces take turns. Queue is
// safe for concurrent use.
type Queue struct {
	store      store.Store
	log        logr.Logger
	work       workqueue.TypedRateLimitingInterface[string]
	pool       *fairpool.Pool // by namespace
	namespaces *lru.Cache     // of threads, by their ids

	mu sync.Mutex
	// notified threads have something in their inbox. Workers need not check.
	notified map[string]bool
	// delayed are threads that failed for a temporary reason and wait for their retry.
	delayed map[string]bool
	backpressure
}

// NewQueue returns an empty queue.
func NewQueue(o Options) *Queue {
	return &Queue{
		store: o.Store, log: o.Log, pool: fairpool.New(o.Workers, o.NamespaceWorkers), namespaces: lru.New(maxNamespaces),
		work: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: o.Clock}),
		notified: map[string]bool{}, delayed: map[string]bool{}, backpressure: newBackpressure(),
	}
}

// Add queues a thread that may have work.
func (q *Queue) Add(id string) { q.work.Add(id) }

// AddAfter queues a thread after a time.
func (q *Queue) AddAfter(id string, wait time.Duration) { q.work.AddAfter(id, wait) }

// AddNotified queues a thread that has something in its inbox.
func (q *Queue) AddNotified(id string) {
	q.mu.Lock()
	q.notified[id] = true
	q.mu.Unlock()
	q.work.Add(id)
}

// TakeNotified reports whether a thread was queued with AddNotified since the last call.
func (q *Queue) TakeNotified(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	notified := q.notified[id]
	delete(q.notified, id)
	return notified
}

// Retry queues a thread again after a failure, later with each failure in a row.
func (q *Queue) Retry(id string) { q.work.AddRateLimited(id) }

// Forget resets the number of failures in a row of a thread.
func (q *Queue) Forget(id string) { q.work.Forget(id) }

// Delay records whether a thread waits for its retry.
func (q *Queue) Delay(id string, on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if on {
		q.delayed[id] = true
	} else {
		delete(q.delayed, id)
	}
}

// IsDelayed reports whether a thread waits for its retry. Notifications do not bring it back earlier.
func (q *Queue) IsDelayed(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.delayed[id]
}

// Load returns how many threads are being worked on, and how many wait for a worker.
func (q *Queue) Load() (running, waiting int) { return q.pool.Load() }

// Run hands threads to handle, on a worker each, until ShutDown is called. Threads that wait for a worker hold no goroutine. Once ctx
// has ended, threads stay for the replica that comes next.
func (q *Queue) Run(ctx context.Context, handle func(ctx context.Context, id string)) {
	var group sync.WaitGroup
	defer group.Wait()
	for range dispatchers {
		group.Go(func() {
			for {
				id, shutdown := q.work.Get()
				if shutdown {
					return
				}
				q.dispatch(ctx, id, handle)
			}
		})
	}
}

// ShutDown makes Run return once the threads that are queued were handed out.
func (q *Queue) ShutDown() { q.work.ShutDown() }

// Wait returns when no worker has a thread any more.
func (q *Queue) Wait() { q.pool.Wait() }

// dispatch hands a thread to a worker when its namespace has its turn.
func (q *Queue) dispatch(ctx context.Context, id string, handle func(ctx context.Context, id string)) {
	namespace, err := q.namespaceOf(ctx, id)
	switch {
	case err == nil:
		q.pool.Go(namespace, func() {
			defer q.work.Done(id)
			if ctx.Err() == nil {
				handle(ctx, id)
			}
		})
		return
	case errors.Is(err, store.ErrNotFound):
		q.drop(id)
	case ctx.Err() == nil:
		q.log.Error(err, "cannot look up a thread with work; it will be retried", "thread", id)
		q.work.AddRateLimited(id)
	}
	q.work.Done(id)
}

// drop forgets all about a thread that was deleted.
func (q *Queue) drop(id string) {
	q.work.Forget(id)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.notified, id)
	delete(q.delayed, id)
	delete(q.waiting, id)
	delete(q.resumed, id)
}

// namespaceOf returns the namespace of a thread, which never changes.
func (q *Queue) namespaceOf(ctx context.Context, id string) (string, error) {
	if namespace, ok := q.namespaces.Get(id); ok {
		return namespace.(string), nil
	}
	t, err := q.store.Thread(ctx, id)
	if err != nil {
		return "", err
	}
	q.namespaces.Add(id, t.Namespace)
	return t.Namespace, nil
}
