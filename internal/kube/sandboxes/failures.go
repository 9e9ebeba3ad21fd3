package sandboxes

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// failedFor is how long a failure is remembered. By then existing connections to a lost node have failed too.
const failedFor = time.Minute

// failures remembers the threads whose sandbox was discarded as failed.
type failures struct {
	clock clock.PassiveClock

	mu sync.Mutex
	at map[string]time.Time // by thread id; mu guards it
}

// isRecent reports whether the thread's last sandbox was discarded as failed less than failedFor ago.
func (f *failures) isRecent(threadID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.at[threadID]
	return ok && f.clock.Since(at) < failedFor
}

// record records a failure, and forgets old failures of other threads.
func (f *failures) record(threadID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.at, func(_ string, at time.Time) bool { return f.clock.Since(at) >= failedFor })
	f.at[threadID] = f.clock.Now()
}

func (f *failures) forget(threadID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, threadID)
}
