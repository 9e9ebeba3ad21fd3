package flow

import (
	"context"
	"fmt"
	"sync"
)

// Semaphores bounds, for each name separately, how many requests use a server that all names share. Requests beyond the bound wait in the
// queue of their name, so the requests of one name delay no others. It is safe for concurrent use.
type Semaphores struct {
	slots, queued int

	mu     sync.Mutex
	byName map[string]*semaphore
}

// semaphore is the semaphore of one name.
type semaphore struct {
	slots chan struct{}
	held  int // requests that have a slot or wait for one
}

// NewSemaphores returns semaphores with a number of slots for each name. At most queued requests of a name have a slot or wait for one.
func NewSemaphores(slots, queued int) *Semaphores {
	return &Semaphores{slots: slots, queued: queued, byName: map[string]*semaphore{}}
}

// Acquire waits for a slot of a name. The slot is taken until release is called. It returns an error when the queue of the name is full, and
// when ctx ends first.
func (s *Semaphores) Acquire(ctx context.Context, name string) (release func(), err error) {
	sem, err := s.enqueue(name)
	if err != nil {
		return nil, err
	}
	select {
	case sem.slots <- struct{}{}:
		return func() {
			<-sem.slots
			s.dequeue(name, sem)
		}, nil
	case <-ctx.Done():
		s.dequeue(name, sem)
		return nil, ctx.Err()
	}
}

func (s *Semaphores) enqueue(name string) (*semaphore, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sem := s.byName[name]
	if sem == nil {
		sem = &semaphore{slots: make(chan struct{}, s.slots)}
		s.byName[name] = sem
	}
	if sem.held >= s.queued {
		return nil, fmt.Errorf("%d requests of %q wait until the API server has said who sends them and what they may do: make fewer at once", s.queued, name)
	}
	sem.held++
	return sem, nil
}

func (s *Semaphores) dequeue(name string, sem *semaphore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sem.held--; sem.held == 0 {
		delete(s.byName, name)
	}
}
