package store

import "encoding/json"

// RunPostRunPending is the State of an ended run whose post-run tasks are not done (THR-13). It is written in the
// transaction that ends the run, so that the tasks survive a crash.
var RunPostRunPending = json.RawMessage(`{"postRun":true}`)

// RunRef identifies a run.
type RunRef struct{ ThreadID, RunID string }

// LeftRun is a run whose post-run tasks were left undone.
type LeftRun struct {
	RunRef
	Namespace string
}

// Wake is a parked run that continues at a time in microseconds. Without a run id it is a thread with an inbox item
// that is held until then.
type Wake struct {
	RunRef
	At int64
}
