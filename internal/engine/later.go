package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/model"
)

// A Model with few permits must not hold all workers: a run that would wait behind many others for its turn gives its
// worker back, with the lease, and goes on where it was when it is called in. Nothing but its id stays in memory. For
// all that others see it is under way.

// mayComeLater lets the model call of a step be turned away. That of a called prompt waits: other calls may be under way
// beside it.
func (r *run) mayComeLater(ctx context.Context) (context.Context, *model.Later) {
	if r.frame != nil {
		return ctx, nil
	}
	id := r.thread.ID
	r.engine.mu.Lock()
	r.active.calledIn = false
	r.engine.mu.Unlock()
	later := &model.Later{Key: id, Again: func() { r.engine.callIn(id) }}
	return model.MayComeLater(ctx, later), later
}

// comeLater keeps what only this run has in memory, and ends its part of it.
func (r *run) comeLater(ctx context.Context, later *model.Later) error {
	if r.exec != nil {
		r.keepScratch(ctx)
		r.countTime()
		r.record.State = r.checkpoint.Encode()
		s := r.newStep("park")
		s.checkpoint(r.record)
		s.saveScopes(false)
		if err := s.commit(ctx); err != nil {
			return err
		}
	}
	r.engine.turnedAway(later, r.active)
	return model.ErrLater
}

// turnedAway notes that a thread waits to be called in, unless it was meanwhile.
func (e *Engine) turnedAway(later *model.Later, a *activeThread) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !a.calledIn {
		e.later[later.Key] = later
	}
}

// callIn has a thread go on that was turned away.
func (e *Engine) callIn(id string) {
	e.mu.Lock()
	if a := e.active[id]; a != nil {
		a.calledIn = true
	}
	delete(e.later, id)
	e.mu.Unlock()
	e.queue.Add(id)
}

// comesLater tells whether a thread waits to be called in, and there is still no room for it: there is no use in looking
// at it.
func (e *Engine) comesLater(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	later := e.later[id]
	if later != nil && !later.Full() {
		delete(e.later, id)
		return false
	}
	return later != nil
}

// forgetLater has a thread looked at though it waits to be called in: its definitions are others.
func (e *Engine) forgetLater(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.later, id)
}
