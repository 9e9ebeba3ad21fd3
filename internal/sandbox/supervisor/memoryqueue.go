//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"slices"
	"sync"
	"time"
)

// memoryQueue hands out an amount of memory. Whoever finds too little waits, first come, first served, so that one
// who wants much is not passed over for ever; nested ones come before all others. Behind those they would wait for
// the memory of the very runs that wait for them.
type memoryQueue struct {
	mu      sync.Mutex
	total   int64
	free    int64
	kept    int64 // by definition isolates, which last for as long as what they are opened for
	nested  []*memoryWaiter
	waiting []*memoryWaiter
}

type memoryWaiter struct {
	memoryClaim
	had chan struct{} // closed when it has its memory
}

// memoryClaim is what acquire takes.
type memoryClaim struct {
	bytes  int64
	nested bool // of a run that another run waits for
	keeps  bool // of a definition isolate
	// patience is how long it waits while what isolates keep leaves no room, whichever of the runs end: an isolate may
	// well be what waits for it. 0: as long as for anything else.
	patience time.Duration
}

// acquire takes memory, and tells whether it got it before ctx ended or its patience.
func (q *memoryQueue) acquire(ctx context.Context, c memoryClaim) bool {
	w := &memoryWaiter{memoryClaim: c, had: make(chan struct{})}
	q.mu.Lock()
	line := &q.waiting
	if c.nested {
		line = &q.nested
	}
	*line = append(*line, w)
	q.serve()
	q.mu.Unlock()
	var look <-chan time.Time
	if c.patience > 0 {
		t := time.NewTicker(c.patience)
		defer t.Stop()
		look = t.C
	}
	for waits := true; waits; {
		select {
		case <-w.had:
			return true
		case <-ctx.Done():
			waits = false
		case <-look:
			waits = !q.tooMuchKept(c.bytes)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-w.had: // in the meantime
		return true
	default:
	}
	*line = slices.DeleteFunc(*line, func(o *memoryWaiter) bool { return o == w })
	q.serve() // those behind it may want less
	return false
}

// tooMuchKept tells whether there would be no room for so much even if all runs ended.
func (q *memoryQueue) tooMuchKept(n int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total-q.kept < n
}

func (q *memoryQueue) release(c memoryClaim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free += c.bytes
	if c.keeps {
		q.kept -= c.bytes
	}
	q.serve()
}

// serve gives what there is to those at the head; mu is held.
func (q *memoryQueue) serve() {
	for _, line := range []*[]*memoryWaiter{&q.nested, &q.waiting} {
		for len(*line) > 0 {
			w := (*line)[0]
			if w.bytes > q.free {
				return
			}
			q.free -= w.bytes
			if w.keeps {
				q.kept += w.bytes
			}
			close(w.had)
			*line = (*line)[1:]
		}
	}
}
