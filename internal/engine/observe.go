package engine

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/skein-dev/skein/internal/engine/ending"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// stoppers is how many threads of which a notification came are checked at once, and observers how many of the others.
	stoppers  = 8
	observers = 2
)

// observeLoop checks the threads that this replica works for when another replica may have terminated or purged them, or
// stopped their run. Those of which a notification came do not wait for the others. It returns when ctx ends.
func (e *Engine) observeLoop(ctx context.Context) {
	var workers sync.WaitGroup
	for queue, n := range map[workqueue.TypedInterface[string]]int{e.stopped: stoppers, e.observed: observers} {
		defer context.AfterFunc(ctx, queue.ShutDown)()
		for range n {
			workers.Go(func() { e.observeFrom(ctx, queue) })
		}
	}
	workers.Wait()
}

func (e *Engine) observeFrom(ctx context.Context, queue workqueue.TypedInterface[string]) {
	for {
		id, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := e.observe(ctx, id); err != nil && ctx.Err() == nil {
			e.log.Error(err, "cannot check whether a thread has ended elsewhere; the next sweep checks again", "thread", id)
		}
		queue.Done(id)
	}
}

// observe ends this replica's work for a thread if another replica decided that.
func (e *Engine) observe(ctx context.Context, id string) error {
	t, err := e.store.Thread(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		e.stops.Abort(id, "the thread is gone")
		return nil
	case err != nil:
		return err
	case t.TerminatedAt != 0:
		e.held.Detach(id, ending.ErrTerminal)
		e.held.Cancel(id, ending.ErrTerminal)
		return nil
	}
	if err := e.stops.Check(ctx, id); err != nil {
		return err
	}
	// A stop, or the end of the conversation, revokes the lease of the replica that executes the run.
	return e.leases.Check(ctx, id)
}

// observeAll queues all threads that this replica works for, so that observeLoop checks them too.
func (e *Engine) observeAll() {
	for _, id := range e.held.IDs() {
		e.observed.Add(id)
	}
}

// missed handles the notification that others may have been lost. It wakes the effect worker, has every active run read its
// inbox again, checks all threads that this replica works for, and starts a sweep.
func (e *Engine) missed() {
	e.effects.Changed(store.AnyEffect)
	e.postRun.Look()
	e.held.MarkAllDirty()
	e.observeAll()
	select {
	case e.sweepNow <- struct{}{}:
	default:
	}
}
