// Package notifications turns the store's notifications (store.Notification) into reconcile requests. So a
// change in the store reaches a controller without polling and without a write to the API server.
package notifications

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/skein-dev/skein/internal/store"
)

// Subscriber is the part of the store that a Source needs.
type Subscriber interface {
	Subscribe(fn func(store.Notification)) (stop func())
}

// gather is how long a request waits after the notification that a thread is at work (store.ChangedAtWork). What ends sooner, as most short runs
// do, costs one reconcile. No status shows before, either, that a thread is at work (docs/adr/0003-thread-status-writes.md).
const gather = 100 * time.Millisecond

// Source is an event source of one controller: a notification about a thread, or about a ScheduledEffect in a source of
// NewEffectSource, enqueues every request that Track bound to its id. While a request waits in the workqueue, further notifications for it are dropped, so that a burst
// costs one reconcile. It is safe for concurrent use.
type Source struct {
	subscriber Subscriber
	mask       store.Change
	subject    func(store.Notification) string

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	tracked map[string][]reconcile.Request // by id; usually one request
	ids     map[reconcile.Request]string   // the inverse of tracked
	pending map[reconcile.Request]waiting
}

// waiting says how a request waits in the workqueue.
type waiting int

const (
	gathers waiting = iota + 1 // for a moment: a notification of more than work makes it due
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
		for _, reqs := range s.tracked {
			s.enqueue(reqs, due)
		}
		return
	}
	how := due
	if (h.Changed & s.mask).IsAtWork() {
		how = gathers
	}
	s.enqueue(s.tracked[s.subject(h)], how)
}

// enqueue enqueues requests that do not wait, or wait longer.
func (s *Source) enqueue(reqs []reconcile.Request, how waiting) {
	for _, req := range reqs {
		if s.pending[req] >= how {
			continue
		}
		s.pending[req] = how
		if how == gathers {
			s.queue.AddAfter(req, gather)
		} else {
			s.queue.Add(req)
		}
	}
}
