//go:build linux && (amd64 || arm64)

package supervisor

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// IdlePath answers for how many milliseconds nothing has run for the thread, 0 while something runs. Managers ask it
// before they give a sandbox up, because only the sandbox knows what another manager runs in it, or ran until it
// crashed. A caller that is about to delete the sandbox adds the parameters below.
const IdlePath = "/v1/idle"

const (
	// IdleAtLeast (milliseconds) makes the sandbox refuse new streams from the moment of an answer of this length or
	// more, so that nothing starts between the answer and the deletion.
	IdleAtLeast = "atLeast"
	// IdleRefuseFor (milliseconds) limits how long it refuses them: if the caller dies before it deletes the sandbox, the
	// sandbox accepts streams again after that time.
	IdleRefuseFor = "hold"
)

// maxRefuseFor limits IdleRefuseFor.
const maxRefuseFor = 2 * time.Minute

// activity counts the streams, and records since when there is none and whether new ones may start. mu guards all
// fields.
type activity struct {
	mu      sync.Mutex
	running int
	since   time.Time
	// refuseUntil is when streams may start again.
	refuseUntil time.Time
}

func newActivity() *activity { return &activity{since: time.Now()} }

// begin counts a stream until end is called. ok is false when the sandbox is about to be deleted.
func (a *activity) begin() (end func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.refuseUntil) {
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

// idle returns for how long nothing has run. If refuseFor is not 0 and nothing has run for atLeast, it also refuses new
// streams for that time, in the same step.
func (a *activity) idle(atLeast, refuseFor time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running > 0 {
		return 0
	}
	now := time.Now()
	idle := now.Sub(a.since).Truncate(time.Millisecond) // as it is sent
	if until := now.Add(refuseFor); refuseFor > 0 && idle >= atLeast && until.After(a.refuseUntil) {
		a.refuseUntil = until
	}
	return idle
}

// answerIdle answers every caller that may open streams. It does not bind the sandbox to a thread.
func (s *Server) answerIdle(w http.ResponseWriter, r *http.Request) {
	if pinned := s.thread.Load(); pinned != nil && *pinned != r.Header.Get(ThreadHeader) {
		http.Error(w, "this sandbox belongs to another thread", http.StatusForbidden)
		return
	}
	var atLeast, refuseFor time.Duration
	if q := r.URL.Query(); q.Has(IdleAtLeast) {
		least, err := strconv.ParseUint(q.Get(IdleAtLeast), 10, 42)
		if err == nil {
			var ms uint64
			ms, err = strconv.ParseUint(q.Get(IdleRefuseFor), 10, 42)
			atLeast, refuseFor = time.Duration(least)*time.Millisecond, min(time.Duration(ms)*time.Millisecond, maxRefuseFor)
		}
		if err != nil {
			http.Error(w, IdleAtLeast+" and "+IdleRefuseFor+" must be numbers of milliseconds", http.StatusBadRequest)
			return
		}
	}
	_, _ = w.Write([]byte(strconv.FormatInt(s.activity.idle(atLeast, refuseFor).Milliseconds(), 10)))
}
