package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// elsewhere is the threads with work whose lease another replica held when this one wanted it. They are looked at
// together, so that a replica that runs nothing of them asks one question for all.
type elsewhere struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

// add adds a thread whose lease another replica holds.
func (s *elsewhere) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]struct{}{}
	}
	s.ids[id] = struct{}{}
}

// all returns the threads, in no order.
func (s *elsewhere) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.ids))
}

// drop removes threads.
func (s *elsewhere) drop(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.ids, id)
	}
}

// TakeUp takes up the threads with work whose lease another replica held when their holder is lost, earlier than the sweep would, until ctx ends.
func (d *Dispatcher) TakeUp(ctx context.Context) {
	ticker := d.opts.Clock.NewTicker(d.opts.LeaseTTL / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		ids := d.elsewhere.all()
		if len(ids) == 0 {
			continue
		}
		free, held, err := d.opts.Store.WithWork(ctx, ids)
		if err != nil {
			if ctx.Err() == nil {
				d.opts.Log.Error(err, "cannot look for threads whose holder is lost; the next look tries again")
			}
			continue
		}
		stay := map[string]bool{}
		for _, id := range held {
			stay[id] = true
		}
		d.elsewhere.drop(slices.DeleteFunc(ids, func(id string) bool { return stay[id] }))
		for _, id := range free {
			d.opts.Queue.Add(id)
		}
	}
}
