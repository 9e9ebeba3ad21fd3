package sqlstore

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/store"
)

// notifications tells subscribers what commits have changed. mu serialises changes of subs; send reads subs without it.
type notifications struct {
	mu   sync.Mutex
	subs atomic.Pointer[[]*func(store.Notification)]
}

// Subscribe implements store.Store. fn is called by the goroutine that committed, so it must not block.
func (s *Store) Subscribe(fn func(store.Notification)) (stop func()) {
	sub := &fn
	s.notifications.change(func(subs []*func(store.Notification)) []*func(store.Notification) { return append(subs, sub) })
	return func() {
		s.notifications.change(func(subs []*func(store.Notification)) []*func(store.Notification) {
			return slices.DeleteFunc(subs, func(other *func(store.Notification)) bool { return other == sub })
		})
	}
}

func (h *notifications) change(edit func([]*func(store.Notification)) []*func(store.Notification)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var now []*func(store.Notification)
	if p := h.subs.Load(); p != nil {
		now = slices.Clone(*p)
	}
	now = edit(now)
	h.subs.Store(&now)
}

func (h *notifications) send(all []store.Notification) {
	p := h.subs.Load()
	if p == nil {
		return
	}
	for _, notification := range all {
		for _, fn := range *p {
			(*fn)(notification)
		}
	}
}
