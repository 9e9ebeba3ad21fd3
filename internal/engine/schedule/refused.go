package schedule

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// firstAgain is how long a thread waits after its first refusal.
const firstAgain = time.Second

// Refused remembers threads that could not run because their definitions were not ready, or a quota had no room. What ends that
// wakes them, so a search for lost work need not try them each time: a try takes and releases the lease, which is
// two commits. The zero value is not usable.
type Refused struct {
	clock clock.PassiveClock
	// keep is how long a search leaves out a thread, and the longest pause between two tries.
	keep time.Duration

	mu      sync.Mutex
	threads map[string]refusal
}

// refusal is the last one of a thread.
type refusal struct {
	at   time.Time
	wait time.Duration // until the next try
}

// NewRefused returns an empty memory that keeps a thread for the given time.
func NewRefused(c clock.PassiveClock, keep time.Duration) *Refused {
	return &Refused{clock: c, keep: keep, threads: map[string]refusal{}}
}

// Add notes that a thread was refused just now. It returns how long the thread is to wait before it is tried again, in case the call that
// would wake it is lost: longer with each refusal in a row.
func (r *Refused) Add(id string) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, last := r.clock.Now(), r.threads[id]
	wait = max(firstAgain, last.wait)
	if last.wait > 0 && now.Sub(last.at) >= last.wait { // else something else had it tried before its time
		wait = min(2*wait, r.keep)
	}
	r.threads[id] = refusal{at: now, wait: wait}
	return wait
}

// Forget removes a thread that was processed.
func (r *Refused) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.threads, id)
}

// Has reports whether a thread was refused a short time ago.
func (r *Refused) Has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.threads[id]
	return ok && r.clock.Since(last.at) < r.keep
}

// Expire removes the threads that were refused long ago, which may be gone.
func (r *Refused) Expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, last := range r.threads {
		if r.clock.Since(last.at) >= 2*r.keep { // a thread that still waits is tried before that
			delete(r.threads, id)
		}
	}
}
