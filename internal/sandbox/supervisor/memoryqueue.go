//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// memoryQueue distributes an amount of memory. A claim that finds too little waits, first come, first served, so that
// a large claim is not passed over forever. Nested claims come before all others: otherwise they would wait for the
// memory of the very runs that wait for them. mu guards all fields.
type memoryQueue struct {
	mu      sync.Mutex
	total   int64
	free    int64
	kept    int64 // by definition isolates, which live as long as the run that opened them
	nested  []*memoryWaiter
	waiting []*memoryWaiter
}

type memoryWaiter struct {
	memoryClaim
	had     chan struct{} // closed when it has its memory
	refused chan struct{} // closed when its patience has ended
	timer   *time.Timer   // for its patience, while isolates leave too little for it
	since   time.Time     // when that began
}

// memoryClaim describes a request for memory.
type memoryClaim struct {
	bytes  int64
	nested bool // of a run that another run waits for
	keeps  bool // of a definition isolate
	// patience is for how long without interruption isolates may leave too little for the claim, even if all runs ended.
	// The claim must not wait longer, because an isolate may itself wait for it. 0 means no separate limit.
	patience time.Duration
	// begun is when its patience began, if there is too little for it from the start. Zero means the time of acquire.
	begun time.Time
}

// Reasons why acquire returns no memory.
var (
	errMemoryKept = errors.New("isolates leave too little memory")
	errMemoryUsed = errors.New("too little memory came free")
)

// acquire takes memory, or returns why there was none before ctx or its patience ended.
func (q *memoryQueue) acquire(ctx context.Context, c memoryClaim) error {
	w := &memoryWaiter{memoryClaim: c, had: make(chan struct{}), refused: make(chan struct{})}
	q.mu.Lock()
	line := q.line(w)
	*line = append(*line, w)
	q.serve()
	if w.timer != nil && !c.begun.IsZero() {
		w.since = c.begun
	}
	q.mu.Unlock()
	select {
	case <-w.had:
		return nil
	case <-w.refused:
		return errMemoryKept
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-w.had: // it got its memory in the meantime
		return nil
	case <-w.refused:
		return errMemoryKept
	default:
	}
	// Its timer may fire late, so the clock decides. While patience is left, isolates may have taken the memory only
	// just now.
	kept := q.tooMuchKept(w) && (w.patience == 0 || w.timer != nil && time.Since(w.since) >= w.patience)
	q.leave(w)
	if kept {
		return errMemoryKept
	}
	return errMemoryUsed
}

// line returns the queue of a waiter.
func (q *memoryQueue) line(w *memoryWaiter) *[]*memoryWaiter {
	if w.nested {
		return &q.nested
	}
	return &q.waiting
}

// leave removes a waiter. mu is held.
func (q *memoryQueue) leave(w *memoryWaiter) {
	w.calm()
	line := q.line(w)
	*line = slices.DeleteFunc(*line, func(o *memoryWaiter) bool { return o == w })
	q.serve() // those behind it may need less
}

// tooMuchKept reports whether there would be too little for a waiter even if all runs ended. mu is held.
func (q *memoryQueue) tooMuchKept(w *memoryWaiter) bool { return q.total-q.kept < w.bytes }

// release returns the memory of a claim, and gives it to those that wait.
func (q *memoryQueue) release(c memoryClaim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free += c.bytes
	if c.keeps {
		q.kept -= c.bytes
	}
	q.serve()
}

// serve distributes the free memory in the order of the queues. mu is held.
func (q *memoryQueue) serve() {
	passed := false
	if q.serveLine(&q.nested, &passed) {
		q.serveLine(&q.waiting, &passed)
	}
	for _, line := range [][]*memoryWaiter{q.nested, q.waiting} {
		for _, w := range line {
			q.time(w)
		}
	}
}

// serveLine serves a queue up to the first waiter that must wait for a run to end, and reports whether there is none.
// Runs pass a waiter that must wait for an isolate to end: they take nothing that it could have, and the isolates may
// be waiting for them. Other isolates do not pass it.
func (q *memoryQueue) serveLine(line *[]*memoryWaiter, passed *bool) bool {
	for i := 0; i < len(*line); {
		w := (*line)[i]
		switch {
		case q.tooMuchKept(w) || *passed && w.keeps:
			*passed = true
			i++
		case w.bytes > q.free:
			return false
		default:
			q.free -= w.bytes
			if w.keeps {
				q.kept += w.bytes
			}
			w.calm()
			close(w.had)
			*line = slices.Delete(*line, i, i+1)
		}
	}
	return true
}

// time starts or stops the patience timer of a waiter. mu is held.
func (q *memoryQueue) time(w *memoryWaiter) {
	switch {
	case !q.tooMuchKept(w):
		w.calm()
	case w.patience > 0 && w.timer == nil:
		var t *time.Timer
		t = time.AfterFunc(w.patience, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if w.timer == t { // otherwise it was served or has gone, or there was enough meanwhile
				q.leave(w)
				close(w.refused)
			}
		})
		w.timer, w.since = t, time.Now()
	}
}

// calm stops the patience timer of a waiter. mu of the queue is held.
func (w *memoryWaiter) calm() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
