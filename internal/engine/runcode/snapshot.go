package runcode

import (
	"bytes"
	"context"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// SnapshotContext puts state.context into the state of a run that is about to wait. It reports whether that changed
// the state of the run.
func (c *Code) SnapshotContext(ctx context.Context) (changed bool) {
	if c.Exec == nil {
		return false
	}
	kept, known := c.Exec.Code.Snapshot(ctx)
	if !known || bytes.Equal(kept, c.role.State.Context) {
		return false
	}
	c.role.State.Context = kept
	return true
}

// restoreContext sets state.context of an execution to what the run has carried over.
func (c *Code) restoreContext(x *codeexec.Execution) {
	if len(c.role.State.Context) == 0 {
		return
	}
	v, err := value.Decode(c.role.State.Context)
	if err != nil {
		c.opts.Log.Error(err, "the run continues without its state.context", "run", c.run.ID)
		return
	}
	x.State.SetContext(v)
}
