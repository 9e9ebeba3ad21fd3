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
// Who is about to delete the sandbox adds the parameters below.
const IdlePath = "/v1/idle"

const (
	// IdleAtLeast (milliseconds) makes the sandbox take no new streams from the moment of an answer that is this long
	// or longer: between the answer and the deletion nobody begins what would be lost.
	IdleAtLeast = "atLeast"
	// IdleHold (milliseconds) is for how long: whoever asked may die before it deletes the sandbox, which is then as good as before.
	IdleHold = "hold"
)

// maxHold bounds IdleHold.
const maxHold = 2 * time.Minute

// activity is how many streams there are, since when there is none, and whether there may be more.
type activity struct {
	mu      sync.Mutex
	running int
	since   time.Time
	held    time.Time // until then none may begin
}

func newActivity() *activity { return &activity{since: time.Now()} }

// begin counts a stream until end is called; not ok: the sandbox is about to be deleted.
func (a *activity) begin() (end func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.held) {
		return nil, false
	}
	a.running++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running--
		a.since = time.Now()
	}, true
}

// idle gives for how long nothing has run. With a hold, an answer of atLeast or more lets none begin for that time: the
// answer and the end of intake are one step.
func (a *activity) idle(atLeast, hold time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running > 0 {
		return 0
	}
	now := time.Now()
	idle := now.Sub(a.since).Truncate(time.Millisecond) // as it is told
	if until := now.Add(hold); hold > 0 && idle >= atLeast && until.After(a.held) {
		a.held = until
	}
	return idle
}

// tellIdle answers whoever may open streams too. It binds the sandbox to no thread.
func (s *Server) tellIdle(w http.ResponseWriter, r *http.Request) {
	if pinned := s.thread.Load(); pinned != nil && *pinned != r.Header.Get(ThreadHeader) {
		http.Error(w, "this sandbox belongs to another thread", http.StatusForbidden)
		return
	}
	var atLeast, hold time.Duration
	if q := r.URL.Query(); q.Has(IdleAtLeast) {
		least, err := strconv.ParseUint(q.Get(IdleAtLeast), 10, 42)
		if err == nil {
			var ms uint64
			ms, err = strconv.ParseUint(q.Get(IdleHold), 10, 42)
			atLeast, hold = time.Duration(least)*time.Millisecond, min(time.Duration(ms)*time.Millisecond, maxHold)
		}
		if err != nil {
			http.Error(w, IdleAtLeast+" and "+IdleHold+" must be numbers of milliseconds", http.StatusBadRequest)
			return
		}
	}
	_, _ = w.Write([]byte(strconv.FormatInt(s.activity.idle(atLeast, hold).Milliseconds(), 10)))
}
