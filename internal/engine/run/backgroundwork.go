package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/store"
)

// finishWork waits for background work that continues after the answer, so that its changes of state are saved with the
// run's end. m is the answer if it is not in the log yet. finishWork writes m before it waits, and then returns nil. If
// there is nothing to wait for, or the write fails, it returns m.
func (r *run) finishWork(ctx context.Context, m *store.Message) (*store.Message, error) {
	s := r.code.Session()
	if s == nil || !s.Working() {
		return m, nil
	}
	if m != nil {
		tx := r.newTransaction("answer")
		tx.clear()
		tx.appendMessage(m)
		tx.putRun(r.record)
		tx.saveScopes(false)
		if err := tx.commit(ctx); err != nil {
			return m, err
		}
		m = nil
	}
	wait, cancel := context.WithTimeoutCause(ctx, codeexec.AfterResponse, codeexec.ErrSlowWork)
	defer cancel()
	err := s.Wait(wait)
	r.countHandlers()
	if errors.Is(err, codeexec.ErrSlowWork) {
		r.code.Lines.Fail("", fmt.Sprintf("background work after the answer takes longer than %s: the run ends without it", codeexec.AfterResponse))
		r.log.Info("background work after the answer takes too long: the run ends without it", "run", r.record.ID, "limit", codeexec.AfterResponse.String())
		return m, nil
	}
	return m, err
}
