package store

import "encoding/json"

// RunUnsettled is the State of an ended run whose post-run tasks are not done (THR-13). It is written with
// the run's end, in one transaction, so that the tasks outlive a crash.
var RunUnsettled = json.RawMessage(`{"postRun":true}`)

// RunRef names a run.
type RunRef struct{ ThreadID, RunID string }

// Wake is a parked run that goes on at a time, in microseconds; or a thread, without a run, of which an inbox item is held
// until then.
type Wake struct {
	RunRef
	At int64
}
