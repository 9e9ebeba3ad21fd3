// Package notify tells subscribers what commits have changed, in this process and, with PostgreSQL, in other replicas.
package notify

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/store"
)

// Subscribers are told what commits have changed. mu serialises changes of the lists. Send reads all and the list of a
// thread without it: a list is never changed, only replaced.
type Subscribers struct {
	mu  sync.Mutex
	all atomic.Pointer[list]
	// threads has a *list for the id of each thread that has subscribers of its own, so that a notification costs nothing
	// to the subscribers of other threads.
	threads sync.Map
}

type (
	subscriber = func(store.Notification)
	list       = []*subscriber
)

// Subscribe implements store.Store. fn is called by the goroutine that committed, so it must not block.
func (s *Subscribers) Subscribe(fn func(store.Notification)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &fn
	s.all.Store(with(s.all.Load(), sub))
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all.Store(without(s.all.Load(), sub))
	}
}

// SubscribeThread implements store.Store. fn is called by the goroutine that committed, so it must not block.
func (s *Subscribers) SubscribeThread(threadID string, fn func(store.Notification)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &fn
	s.threads.Store(threadID, with(s.thread(threadID), sub))
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if rest := without(s.thread(threadID), sub); len(*rest) > 0 {
			s.threads.Store(threadID, rest)
		} else {
			s.threads.Delete(threadID)
		}
	}
}

// thread returns the subscribers of a thread, or nil when it has none.
func (s *Subscribers) thread(id string) *list {
	subs, _ := s.threads.Load(id)
	found, _ := subs.(*list)
	return found
}

func with(before *list, sub *subscriber) *list {
	var now list
	if before != nil {
		now = slices.Clone(*before)
	}
	now = append(now, sub)
	return &now
}

func without(before *list, sub *subscriber) *list {
	var now list
	if before != nil {
		now = slices.DeleteFunc(slices.Clone(*before), func(other *subscriber) bool { return other == sub })
	}
	return &now
}

// Send tells the subscribers of changes.
func (s *Subscribers) Send(all []store.Notification) {
	general := s.all.Load()
	for _, n := range all {
		deliver(general, n)
		switch {
		case n.Everything():
			s.threads.Range(func(_, subs any) bool {
				found, _ := subs.(*list)
				deliver(found, n)
				return true
			})
		case n.ThreadID != "":
			deliver(s.thread(n.ThreadID), n)
		}
	}
}

func deliver(subs *list, n store.Notification) {
	if subs == nil {
		return
	}
	for _, fn := range *subs {
		(*fn)(n)
	}
}
