//go:build linux && (amd64 || arm64)

package supervisor

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// IdlePath answers for how many milliseconds nothing has run for the thread, 0 while something does. Managers
// ask before they give a sandbox up: what another of them runs in it, or ran until it crashed, is known here alone.
const IdlePath = "/v1/idle"

// activity is how many streams there are, and since when there is none.
type activity struct {
	mu      sync.Mutex
	running int
	since   time.Time
}

func newActivity() *activity { return &activity{since: time.Now()} }

// begin counts a stream until end is called.
func (a *activity) begin() (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running--
		a.since = time.Now()
	}
}

func (a *activity) idle() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running > 0 {
		return 0
	}
	return time.Since(a.since)
}

// tellIdle answers whoever may open streams too. It binds the sandbox to no thread.
func (s *Server) tellIdle(w http.ResponseWriter, r *http.Request) {
	if pinned := s.thread.Load(); pinned != nil && *pinned != r.Header.Get(ThreadHeader) {
		http.Error(w, "this sandbox belongs to another thread", http.StatusForbidden)
		return
	}
	_, _ = w.Write([]byte(strconv.FormatInt(s.activity.idle().Milliseconds(), 10)))
}
