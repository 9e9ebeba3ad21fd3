package schedule

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Refused remembers threads that could not run because their definitions were not ready. What makes the definitions
// ready wakes them, so a search for lost work need not try them each time: a try takes and releases the lease, which is
// two commits. The zero value is not usable.
type Refused struct {
	clock clock.PassiveClock
	// keep is how long a thread is remembered, in case the call that would wake it was lost.
	keep time.Duration

	mu    sync.Mutex
	since map[string]time.Time
}

// NewRefused returns an empty memory that keeps a thread for the given time.
func NewRefused(c clock.PassiveClock, keep time.Duration) *Refused {
	return &Refused{clock: c, keep: keep, since: map[string]time.Time{}}
}

// Add notes that a thread was refused just now.
func (r *Refused) Add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since[id] = r.clock.Now()
}

// Forget removes a thread that was processed.
func (r *Refused) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, id)
}

// Has reports whether a thread was refused a short time ago.
func (r *Refused) Has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.since[id]
	return ok && r.clock.Since(at) < r.keep
}

// Expire removes the threads that were refused long ago, which may be gone.
func (r *Refused) Expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, at := range r.since {
		if r.clock.Since(at) >= r.keep {
			delete(r.since, id)
		}
	}
}
