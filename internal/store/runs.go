package store

import "encoding/json"

// RunStatus is the status of a run.
type RunStatus string

// The statuses of a run.
const (
	RunRunning    RunStatus = "running"
	RunWaiting    RunStatus = "waiting" // parked: it holds no lease and no goroutine
	RunSucceeded  RunStatus = "succeeded"
	RunFailed     RunStatus = "failed"
	RunStopped    RunStatus = "stopped"
	RunTerminated RunStatus = "terminated"
)

// Ended reports whether a run with this status is over.
func (s RunStatus) Ended() bool { return s != RunRunning && s != RunWaiting }

// Run is one execution of a thread, from wake-up to rest.
type Run struct {
	ID        string // sess_ and 32 hex digits
	ThreadID  string
	Agent     string
	Status    RunStatus
	Reason    string // CamelCase
	Message   string // for people, redacted
	Steps     int
	StartedAt int64
	EndedAt   int64
	WakeAt    int64           // when a parked run continues by itself, in microseconds; kept only while it waits
	State     json.RawMessage // internal to the engine: counts, and what the run waits for
	Usage     json.RawMessage
	// SessionState is the state of the session, an object, kept with the run (STA-01). With nil, PutRun leaves the
	// stored state as it is.
	SessionState json.RawMessage
}

// Bytes returns about how many bytes of memory the run takes.
func (r *Run) Bytes() int64 {
	const overhead = 512
	return overhead + int64(len(r.Message)+len(r.State)+len(r.Usage)+len(r.SessionState))
}
