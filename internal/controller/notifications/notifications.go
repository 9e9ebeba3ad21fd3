// Package notifications turns the store's notifications (store.Notification) into reconcile requests. So a
// change in the store reaches a controller without polling and without a write to the API server.
package notifications

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/store"
)

// Subscriber is the part of the store that a Source needs.
type Subscriber interface {
	Subscribe(fn func(store.Notification)) (stop func())
}

// gather is how long a request waits after the notification that a thread is at work (store.ChangedAtWork). What ends sooner, as most short runs
// do, costs one reconcile. No status shows before, either, that a thread is at work (docs/adr/0003-thread-status-writes.md).
const gather = 100 * time.Millisecond

// When notifications may be lost, all requests are enqueued, missedAtOnce of them each missedEvery.
const (
	missedAtOnce = 1000
	missedEvery  = time.Second
)

// Source is an event source of one controller: a notification about a thread, or about a ScheduledEffect in a source of
// NewEffectSource, enqueues every request that Track bound to its id. While a request waits in the workqueue, further notifications for it are dropped, so that a burst
// costs one reconcile. What has changed passes objects that were only created. When notifications may be lost, all requests are enqueued behind
// everything else, as a search for what was missed. Source is safe for concurrent use.
type Source struct {
	subscriber Subscriber
	mask       store.Change
	subject    func(store.Notification) string

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	tracked map[string][]reconcile.Request // by id; usually one request
	ids     map[reconcile.Request]string   // the inverse of tracked
	pending map[reconcile.Request]waiting
	// searched is when the last request of a search that is under way is due.
	searched time.Time
}

// waiting says how a request waits in the workqueue.
type waiting int

const (
	missed  waiting = iota + 1 // behind everything else, in case a notification was lost
	gathers                    // for a moment: a notification of more than work makes it due
	due
)

// NewSource returns a source for notifications of the kinds in mask.
func NewSource(s Subscriber, mask store.Change) *Source {
	return &Source{
		subscriber: s,
		mask:       mask,
		subject:    func(h store.Notification) string { return h.ThreadID },
		tracked:    map[string][]reconcile.Request{},
		ids:        map[reconcile.Request]string{},
		pending:    map[reconcile.Request]waiting{},
	}
}

// NewEffectSource returns a source for notifications about firings. Requests are bound to ids of ScheduledEffects.
func NewEffectSource(s Subscriber) *Source {
	src := NewSource(s, store.ChangedFiring)
	src.subject = func(h store.Notification) string { return h.EffectID }
	return src
}

// Start implements source.Source.
func (s *Source) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	s.queue = queue
	s.mu.Unlock()
	stop := s.subscriber.Subscribe(s.notify)
	context.AfterFunc(ctx, stop)
	return nil
}

// Track binds a request to the id of a thread or of an effect. It replaces the id that the request was bound to before.
func (s *Source) Track(id string, req reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[req] == id {
		return
	}
	s.untrack(req)
	s.ids[req] = id
	s.tracked[id] = append(s.tracked[id], req)
}

// Forget undoes Track.
func (s *Source) Forget(req reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.untrack(req)
	delete(s.pending, req)
}

func (s *Source) untrack(req reconcile.Request) {
	id, ok := s.ids[req]
	if !ok {
		return
	}
	delete(s.ids, req)
	rest := slices.DeleteFunc(s.tracked[id], func(r reconcile.Request) bool { return r == req })
	if len(rest) == 0 {
		delete(s.tracked, id)
		return
	}
	s.tracked[id] = rest
}

// Begin must be called before a reconcile reads the store. Later notifications enqueue the request again.
func (s *Source) Begin(req reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, req)
}

// Suppress drops notifications for a request until its next reconcile, which the caller has already scheduled.
func (s *Source) Suppress(req reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[req] = due
}

// notify handles a notification. The store calls it after a commit, so it must not block.
func (s *Source) notify(h store.Notification) {
	if h.Changed&s.mask == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Everything() {
		s.search()
		return
	}
	how := due
	if (h.Changed & s.mask).IsAtWork() {
		how = gathers
	}
	s.enqueue(s.tracked[s.subject(h)], how)
}

// search enqueues every request that does not wait.
func (s *Source) search() {
	var reqs []reconcile.Request
	for req := range s.ids {
		if s.pending[req] == 0 {
			s.pending[req] = missed
			reqs = append(reqs, req)
		}
	}
	now := time.Now()
	after := max(s.searched.Sub(now), 0) // behind a search that is under way, which keeps its pace
	for some := range slices.Chunk(reqs, missedAtOnce) {
		s.add(watches.MissedPriority, after, some...)
		after += missedEvery
	}
	if len(reqs) > 0 {
		s.searched = now.Add(after - missedEvery)
	}
}

// enqueue enqueues requests that do not wait, or wait longer.
func (s *Source) enqueue(reqs []reconcile.Request, how waiting) {
	for _, req := range reqs {
		if s.pending[req] >= how {
			continue
		}
		s.pending[req] = how
		if how == gathers {
			s.add(watches.NormalPriority, gather, req)
		} else {
			s.add(watches.ChangedPriority, 0, req)
		}
	}
}

func (s *Source) add(priority int, after time.Duration, reqs ...reconcile.Request) {
	if queue, ok := s.queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, reqs...)
		return
	}
	for _, req := range reqs {
		if after > 0 {
			s.queue.AddAfter(req, after)
		} else {
			s.queue.Add(req)
		}
	}
}
