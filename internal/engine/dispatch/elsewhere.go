package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// headStart is the least time that a replica has to take up the work that it announces before other replicas look at it. The others
// gather such announcements for as long.
const headStart = 100 * time.Millisecond

// elsewhere holds the threads with work that another replica probably has, or had when this one wanted it. This replica checks
// all of them with one query.
type elsewhere struct {
	mu sync.Mutex
	// held are threads whose lease another replica held: true for those that this replica wanted. heard are threads whose work another replica
	// has announced, and which it most likely takes up itself. ripe are threads that were announced before the last look. At the next look they
	// have had their head start.
	held        map[string]bool
	heard, ripe map[string]struct{}
	wake        chan struct{} // there are some in heard or ripe
}

func newElsewhere() elsewhere {
	return elsewhere{held: map[string]bool{}, heard: map[string]struct{}{}, wake: make(chan struct{}, 1)}
}

// add adds threads whose lease another replica holds.
func (s *elsewhere) add(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if _, in := s.held[id]; !in {
			s.held[id] = false
		}
	}
}

// want adds a thread that this replica wanted and whose lease another one holds.
func (s *elsewhere) want(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[id] = true
}

// takeHeld removes the held threads and returns them with whether this replica wanted them. Those that are added meanwhile stay.
func (s *elsewhere) takeHeld() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held
	s.held = map[string]bool{}
	return held
}

// hear notes that another replica has announced work.
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

// takeRipe returns the threads that were announced before the last call. Later announcements are left for the next call.
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

// TakeUp takes up the threads with work whose lease another replica held once it is free, earlier than the sweep would, until ctx ends. It also
// takes up those that this replica has wanted: their run or a hook may be due by its time, of which the store does not say that it is work.
func (d *Dispatcher) TakeUp(ctx context.Context) {
	ticker := d.opts.Clock.NewTicker(d.opts.LeaseTTL / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		looked := d.elsewhere.takeHeld()
		free, held, ok := d.withWork(ctx, slices.Collect(maps.Keys(looked)))
		if !ok {
			held = slices.Collect(maps.Keys(looked))
		}
		for _, id := range held {
			if looked[id] {
				d.elsewhere.want(id)
			}
			delete(looked, id)
		}
		for _, id := range free {
			looked[id] = true
		}
		for id, take := range looked {
			if take {
				d.opts.Queue.Add(id)
			}
		}
	}
}

// withWork returns those of some threads that have work: with a free lease, and with one that is held. It keeps the latter for TakeUp, and
// keeps all when the store does not answer. A query that hangs must not delay the next ones for long.
func (d *Dispatcher) withWork(ctx context.Context, ids []string) (free, held []string, ok bool) {
	if len(ids) == 0 {
		return nil, nil, true
	}
	bounded, cancel := context.WithTimeout(ctx, d.opts.LeaseTTL/3)
	defer cancel()
	var err error
	free, held, err = d.opts.Store.WithWork(bounded, ids)
	if err != nil {
		d.elsewhere.add(ids...)
		if ctx.Err() == nil {
			d.opts.Log.Error(err, "cannot look for threads whose holder is lost; the next look tries again")
		}
		return nil, nil, false
	}
	d.elsewhere.add(held...)
	return free, held, true
}

// Hear looks at the threads whose work other replicas announce, until ctx ends. It takes up those with a free lease: their replica has no
// free worker, cannot run their agent, drains, or has ended. It leaves the others to TakeUp. Acquiring the lease of each thread would lock
// rows that its holder is about to write.
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
		free, _, _ := d.withWork(ctx, d.elsewhere.takeRipe())
		for _, id := range free {
			if !d.opts.Queue.IsDelayed(id) {
				d.opts.Queue.AddNotified(id)
			}
		}
	}
}
