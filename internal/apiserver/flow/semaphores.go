package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Semaphores bounds, for each name separately, how many requests use a server that all names share. Requests beyond the bound wait in the
// queue of their name, so the requests of one name delay no others. It is safe for concurrent use.
type Semaphores struct {
	slots, queued int
	what          string

	mu     sync.Mutex
	byName map[string]*semaphore
}

// semaphore is the semaphore of one name.
type semaphore struct {
	slots chan struct{}
	held  int // requests that have a slot or wait for one
}

// NewSemaphores returns semaphores with a number of slots for each name. At most queued requests of a name have a slot or wait for one.
// what says in errors what they are, with %q in place of the name.
func NewSemaphores(slots, queued int, what string) *Semaphores {
	return &Semaphores{slots: slots, queued: queued, what: what, byName: map[string]*semaphore{}}
}

// Acquire waits for a slot of a name. The slot is taken until release is called. When the queue of the name is full, or the deadline of ctx
// passes first, it returns a *StatusError with 429. When ctx is canceled first, it returns the error of ctx.
func (s *Semaphores) Acquire(ctx context.Context, name string) (release func(), err error) {
	sem := s.enqueue(name)
	if sem == nil {
		return nil, tooMany(fmt.Sprintf("%d "+s.what, s.queued, name))
	}
	select {
	case sem.slots <- struct{}{}:
		return func() {
			<-sem.slots
			s.dequeue(name, sem)
		}, nil
	case <-ctx.Done():
		s.dequeue(name, sem)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, tooMany(fmt.Sprintf("the request waited until its deadline, because %d "+s.what, s.slots, name))
		}
		return nil, ctx.Err()
	}
}

// enqueue returns the semaphore of a name, or nil when its queue is full.
func (s *Semaphores) enqueue(name string) *semaphore {
	s.mu.Lock()
	defer s.mu.Unlock()
	sem := s.byName[name]
	if sem == nil {
		sem = &semaphore{slots: make(chan struct{}, s.slots)}
		s.byName[name] = sem
	}
	if sem.held >= s.queued {
		return nil
	}
	sem.held++
	return sem
}

func (s *Semaphores) dequeue(name string, sem *semaphore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sem.held--; sem.held == 0 {
		delete(s.byName, name)
	}
}
