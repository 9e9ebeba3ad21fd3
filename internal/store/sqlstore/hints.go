package sqlstore

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/store"
)

// hints tells subscribers what commits have changed. mu serialises changes of subs; send reads subs without it.
type hints struct {
	mu   sync.Mutex
	subs atomic.Pointer[[]*func(store.Hint)]
}

// Subscribe implements store.Store. fn is called by the goroutine that committed, so it must not block.
func (s *Store) Subscribe(fn func(store.Hint)) (stop func()) {
	sub := &fn
	s.hints.change(func(subs []*func(store.Hint)) []*func(store.Hint) { return append(subs, sub) })
	return func() {
		s.hints.change(func(subs []*func(store.Hint)) []*func(store.Hint) {
			return slices.DeleteFunc(subs, func(other *func(store.Hint)) bool { return other == sub })
		})
	}
}

func (h *hints) change(edit func([]*func(store.Hint)) []*func(store.Hint)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var now []*func(store.Hint)
	if p := h.subs.Load(); p != nil {
		now = slices.Clone(*p)
	}
	now = edit(now)
	h.subs.Store(&now)
}

func (h *hints) send(all []store.Hint) {
	p := h.subs.Load()
	if p == nil {
		return
	}
	for _, hint := range all {
		for _, fn := range *p {
			(*fn)(hint)
		}
	}
}
