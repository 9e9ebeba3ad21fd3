package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// headStart is how long a replica that tells of work has, at the least, to take it up itself before others look. They gather what they
// are told of for as long.
const headStart = 100 * time.Millisecond

// elsewhere is the threads with work that another replica is likely to have, or had when this one wanted it. They are looked at
// together, so that a replica that runs nothing of them asks one question for all.
type elsewhere struct {
	mu sync.Mutex
	// held are threads whose lease another replica held. heard are threads of whose work another replica has told, and which it
	// most likely takes up itself. ripe are those that were heard of at least a head start ago.
	held, heard, ripe map[string]struct{}
	wake              chan struct{} // there are some in heard or ripe
}

func newElsewhere() elsewhere {
	return elsewhere{held: map[string]struct{}{}, heard: map[string]struct{}{}, wake: make(chan struct{}, 1)}
}

// add adds threads whose lease another replica holds.
func (s *elsewhere) add(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.held[id] = struct{}{}
	}
}

// all returns the threads, in no order.
func (s *elsewhere) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.held))
}

// drop removes threads.
func (s *elsewhere) drop(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.held, id)
	}
}

// hear notes that another replica has told of work.
func (s *elsewhere) hear(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[id] = struct{}{}
	s.signal()
}

func (s *elsewhere) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// takeRipe returns what was heard before the last call. What was heard since is for the next one.
func (s *elsewhere) takeRipe() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Collect(maps.Keys(s.ripe))
	s.ripe, s.heard = s.heard, map[string]struct{}{}
	if len(s.ripe) > 0 {
		s.signal()
	}
	return ids
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

// Hear looks at the threads of whose work other replicas tell, until ctx ends. It takes up those whose lease is free: their replica has
// no worker for them, or has ended. The others it leaves to TakeUp. To ask for the lease of each would lock what its holder is about to write.
func (d *Dispatcher) Hear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.elsewhere.wake:
		}
		timer := d.opts.Clock.NewTimer(headStart)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		ids := d.elsewhere.takeRipe()
		if len(ids) == 0 {
			continue
		}
		free, held, err := d.opts.Store.WithWork(ctx, ids)
		if err != nil { // TakeUp asks again
			free, held = nil, ids
		}
		d.elsewhere.add(held...)
		for _, id := range free {
			if !d.opts.Queue.IsDelayed(id) {
				d.opts.Queue.AddNotified(id)
			}
		}
	}
}
