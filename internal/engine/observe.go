package engine

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// observeLoop looks after what other replicas may have decided of the threads that this one is at work for:
// that they are terminated, purged, or that their run was stopped.
func (e *Engine) observeLoop(ctx context.Context) {
	defer context.AfterFunc(ctx, e.observed.ShutDown)()
	for {
		id, shutdown := e.observed.Get()
		if shutdown {
			return
		}
		if err := e.observe(ctx, id); err != nil && ctx.Err() == nil {
			e.log.Error(err, "cannot see what became of a thread", "thread", id) // the next sweep looks again
		}
		e.observed.Done(id)
	}
}

// observe ends the work for a thread when that was decided elsewhere.
func (e *Engine) observe(ctx context.Context, id string) error {
	t, err := e.store.Thread(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		e.Abort(ctx, id, "the thread is gone")
		return nil
	case err != nil:
		return err
	case t.TerminatedAt != 0:
		e.detach(id, errTerminal)
		e.cancel(id, errTerminal)
		return nil
	}
	if err := e.checkStopRequests(ctx, id); err != nil {
		return err
	}
	// A stop, or the end of the conversation, takes the lease from whoever is at the run.
	return e.leases.Check(ctx, id)
}

// working tells whether this replica is at work for a thread, in a run or beside.
func (e *Engine) working(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[id] != nil || len(e.background[id]) > 0
}

// observeAll queues all threads that this replica is at work for.
func (e *Engine) observeAll() {
	e.mu.Lock()
	ids := make(map[string]struct{}, len(e.active)+len(e.background))
	for id := range e.active {
		ids[id] = struct{}{}
	}
	for id := range e.background {
		ids[id] = struct{}{}
	}
	e.mu.Unlock()
	for id := range ids {
		e.observed.Add(id)
	}
}

// missed is the hint that hints may have been missed: whatever is known from hints is found out again.
func (e *Engine) missed() {
	e.effects.wake()
	e.mu.Lock()
	for _, a := range e.active {
		a.markDirty()
	}
	e.mu.Unlock()
	e.observeAll()
	select {
	case e.sweepNow <- struct{}{}:
	default:
	}
}
