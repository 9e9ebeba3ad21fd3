// Package notify tells subscribers what commits have changed, in this process and, with PostgreSQL, in other replicas.
package notify

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/store"
)

// Subscribers are told what commits have changed. mu serialises changes of subs; send reads subs without it.
type Subscribers struct {
	mu   sync.Mutex
	subs atomic.Pointer[[]*func(store.Notification)]
}

// Subscribe implements store.Store. fn is called by the goroutine that committed, so it must not block.
func (s *Subscribers) Subscribe(fn func(store.Notification)) (stop func()) {
	sub := &fn
	s.change(func(subs []*func(store.Notification)) []*func(store.Notification) { return append(subs, sub) })
	return func() {
		s.change(func(subs []*func(store.Notification)) []*func(store.Notification) {
			return slices.DeleteFunc(subs, func(other *func(store.Notification)) bool { return other == sub })
		})
	}
}

func (s *Subscribers) change(edit func([]*func(store.Notification)) []*func(store.Notification)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now []*func(store.Notification)
	if p := s.subs.Load(); p != nil {
		now = slices.Clone(*p)
	}
	now = edit(now)
	s.subs.Store(&now)
}

// Send tells the subscribers of changes.
func (s *Subscribers) Send(all []store.Notification) {
	p := s.subs.Load()
	if p == nil {
		return
	}
	for _, notification := range all {
		for _, fn := range *p {
			(*fn)(notification)
		}
	}
}
