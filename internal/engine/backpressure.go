package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/model"
)

// allowBackpressure returns a context with which the model may turn the call of a step away (package schedule). The call of a called
// prompt waits for its turn instead, since other calls may be under way beside it; later is nil then.
func (r *run) allowBackpressure(ctx context.Context) (call context.Context, later *model.Later) {
	if r.frame != nil {
		return ctx, nil
	}
	later = r.engine.queue.ExpectResume(r.thread.ID)
	return model.MayComeLater(ctx, later), later
}

// giveWorkerBack writes what only the memory of this run has, and ends the run's part on this replica. To everybody else the run is
// still under way. The returned error is model.ErrLater, or says why nothing was written.
func (r *run) giveWorkerBack(ctx context.Context, later *model.Later) error {
	if r.exec != nil {
		r.snapshotContext(ctx)
		r.countTime()
		r.record.State = r.checkpoint.Encode()
		s := r.newStep("park")
		s.checkpoint(r.record)
		s.saveScopes(false)
		if err := s.commit(ctx); err != nil {
			return err
		}
	}
	r.engine.queue.WaitForModel(later)
	return model.ErrLater
}
