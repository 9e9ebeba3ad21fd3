package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/model"
)

// allowBackpressure returns a context with which the model may turn away the call of a step (see package schedule). In a called
// prompt it returns ctx and a nil later: that call waits for its turn, since other calls may be under way beside it.
func (r *run) allowBackpressure(ctx context.Context) (call context.Context, later *model.Later) {
	if r.Frame != nil {
		return ctx, nil
	}
	later = r.engine.queue.ExpectResume(r.Thread.ID)
	return model.MayComeLater(ctx, later), later
}

// giveWorkerBack checkpoints what is only in memory, and ends this replica's part of the run so that its worker is free. All others
// still see the run as under way. The error is model.ErrLater after success. Any other error says why nothing was written.
func (r *run) giveWorkerBack(ctx context.Context, later *model.Later) error {
	if r.code.Exec != nil {
		r.code.SnapshotContext(ctx)
		r.countTime()
		r.record.State = r.Checkpoint.Encode()
		if err := r.newStep("park").save(ctx); err != nil {
			return err
		}
	}
	r.engine.queue.WaitForModel(later)
	return model.ErrLater
}
