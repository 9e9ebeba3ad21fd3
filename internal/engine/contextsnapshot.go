package engine

import (
	"bytes"
	"context"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// snapshotContext puts state.context into the checkpoint of a run that is about to wait. It reports whether that changed
// the checkpoint.
func (r *run) snapshotContext(ctx context.Context) (changed bool) {
	if r.exec == nil {
		return false
	}
	kept, known := r.exec.Code.Snapshot(ctx)
	if !known || bytes.Equal(kept, r.Checkpoint.Context) {
		return false
	}
	r.Checkpoint.Context = kept
	return true
}

// restoreContext sets state.context of an execution to what the run has carried over.
func (r *run) restoreContext(x *codeexec.Execution) {
	if len(r.Checkpoint.Context) == 0 {
		return
	}
	v, err := value.Decode(r.Checkpoint.Context)
	if err != nil {
		r.log.Error(err, "the run continues without its state.context", "run", r.record.ID)
		return
	}
	x.State.SetContext(v)
}
