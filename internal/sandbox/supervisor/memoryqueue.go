//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"slices"
	"sync"
)

// memoryQueue hands out an amount of memory. Whoever finds too little waits, first come, first served, so that one
// who wants much is not passed over for ever; nested ones come before all others. Behind those they would wait for
// the memory of the very runs that wait for them.
type memoryQueue struct {
	mu      sync.Mutex
	free    int64
	nested  []*memoryWaiter
	waiting []*memoryWaiter
}

type memoryWaiter struct {
	n   int64
	had chan struct{} // closed when it has its memory
}

// acquire takes n bytes, and tells whether it got them before ctx ended.
func (q *memoryQueue) acquire(ctx context.Context, n int64, nested bool) bool {
	w := &memoryWaiter{n: n, had: make(chan struct{})}
	q.mu.Lock()
	line := &q.waiting
	if nested {
		line = &q.nested
	}
	*line = append(*line, w)
	q.serve()
	q.mu.Unlock()
	select {
	case <-w.had:
		return true
	case <-ctx.Done():
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

func (q *memoryQueue) release(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free += n
	q.serve()
}

// serve gives what there is to those at the head; mu is held.
func (q *memoryQueue) serve() {
	for _, line := range []*[]*memoryWaiter{&q.nested, &q.waiting} {
		for len(*line) > 0 {
			w := (*line)[0]
			if w.n > q.free {
				return
			}
			q.free -= w.n
			close(w.had)
			*line = (*line)[1:]
		}
	}
}
