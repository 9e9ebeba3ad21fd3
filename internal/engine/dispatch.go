package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// runnableBatch is how many threads one look for lost work takes.
const runnableBatch = 1000

// activeThread is a thread that this replica holds.
type activeThread struct {
	cancel context.CancelCauseFunc
	// cause for which it was cancelled, under the engine's lock; nil when it was not.
	cause error
	// run that is under way, under the engine's lock; "" while it is not known.
	run string
	// done is closed when the thread has been let go of.
	done chan struct{}
	// dirty: the inbox may have changed since the holder last read it.
	dirty atomic.Bool
	// onDirty is called then too; nil for nothing.
	onDirty atomic.Pointer[func()]
	// passedOver is the newest inbox item for which hooks were passed over that were held; 1 for a time, 0 for none. For the
	// holder alone.
	passedOver int64
	// ended are runs whose post-run tasks begin when the lease is no longer theirs.
	ended []store.RunRef
}

// notify receives the store's hints. It must not block.
func (e *Engine) notify(h store.Notification) {
	if h.ThreadID == "" && h.Remote {
		e.missed()
		return
	}
	if h.Remote && h.Changed&store.ChangedThread != 0 && e.working(h.ThreadID) {
		e.observed.Add(h.ThreadID)
	}
	if h.Changed&store.ChangedStop != 0 && e.here(h.ThreadID) {
		e.observed.Add(h.ThreadID)
	}
	if h.Changed&store.ChangedThread != 0 && !e.here(h.ThreadID) {
		e.recent.Drop(h.ThreadID) // it may have been cleared, or purged
	}
	if h.Changed&store.ChangedFiring != 0 {
		e.effects.wake()
	}
	if h.Changed&store.ChangedInbox == 0 {
		return
	}
	e.mu.Lock()
	a := e.active[h.ThreadID]
	e.mu.Unlock()
	switch {
	case a != nil:
		a.markDirty()
	case !e.queue.Delayed(h.ThreadID):
		e.queue.AddNotified(h.ThreadID)
	}
}

// dispatchLoop hands threads to workers until the queue is shut down.
func (e *Engine) dispatchLoop(ctx context.Context) { e.queue.Run(ctx, e.handle) }

// Load returns how many threads this replica runs, and how many wait for a worker.
func (e *Engine) Load() (running, waiting int) {
	return e.queue.Load()
}

// handle processes a thread and sees to what must come after.
func (e *Engine) handle(ctx context.Context, id string) {
	if e.queue.WaitsForModel(id) {
		e.queue.Forget(id)
		return
	}
	e.queue.Delay(id, false)
	err := e.process(ctx, id)
	var notReady *definition.NotReadyError
	switch {
	case err == nil, errors.Is(err, errShutdown), errors.Is(err, model.ErrLater):
		e.queue.Forget(id)
	case errors.As(err, &notReady):
		// It keeps its inbox. Whoever sees the definitions become ready calls Wake.
		e.queue.Forget(id)
		e.log.V(1).Info("thread waits for its definitions", "thread", id, "reason", notReady.Reason, "message", notReady.Message)
	case errors.Is(err, store.ErrFenced), errors.Is(err, schedule.ErrLeaseLost):
		e.log.Info("thread was lost to another holder", "thread", id)
		e.queue.Forget(id)
		e.queue.AddAfter(id, e.opts.LeaseTTL/3)
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrLeaseHeld):
		// By another replica, which sees to it, or by one that is lost: look again before a sweep would.
		e.queue.AddAfter(id, e.opts.LeaseTTL/3)
	default:
		e.log.Error(err, "run was interrupted and will be taken up again", "thread", id)
		e.queue.Retry(id)
	}
}

// sweepLoop looks for threads whose hint was lost, or whose holder was: at start, at a slow beat, and when
// hints may have been missed.
func (e *Engine) sweepLoop(ctx context.Context) {
	for {
		wait := e.opts.SweepInterval
		ids, err := e.store.Runnable(ctx, runnableBatch)
		switch {
		case err != nil && ctx.Err() == nil:
			e.log.Error(err, "cannot look for threads with work")
		case len(ids) == runnableBatch:
			wait = min(wait, time.Second) // there may be more
		}
		for _, id := range ids {
			e.queue.Add(id)
		}
		e.observeAll()
		timer := e.opts.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-e.sweepNow:
			timer.Stop()
		}
	}
}

// register makes a thread active; false when it is already.
func (e *Engine) register(id string, a *activeThread) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active[id] != nil {
		return false
	}
	a.done = make(chan struct{})
	e.active[id] = a
	return true
}

// unregister lets go of a thread, after its lease was given back. It queues it again when a hint came in the meantime, and sees to it that
// a cancellation that came too late for the run, while it was being parked, is not lost.
func (e *Engine) unregister(ctx context.Context, id string, a *activeThread) {
	defer close(a.done)
	e.followEnded(a)
	e.mu.Lock()
	delete(e.active, id)
	cause := a.cause
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if stopped := stopOf(cause); stopped != nil {
		if !stopped.written && stopped.err == nil {
			if _, err := e.stopElsewhere(ctx, id, stopped); err != nil {
				stopped.err = err
				e.log.Error(err, "cannot stop a run", "thread", id)
			}
		}
		e.queue.Add(id) // what a user has said since
		return
	}
	if errors.Is(cause, errDestroyed) {
		e.queue.Add(id) // what has come since, whose hint the run may have taken for its own
		return
	}
	if errors.Is(cause, errTerminal) {
		if err := e.endTerminatedRun(ctx, id); err != nil {
			e.log.Error(err, "cannot end the run of a terminated thread", "thread", id)
		}
		return
	}
	if a.dirty.Load() && !e.queue.Delayed(id) {
		e.queue.AddNotified(id)
	}
}

// followEnded has the post-run tasks begin of the runs that have ended since it was last called. The lease is no longer theirs.
func (e *Engine) followEnded(a *activeThread) {
	e.postRun.Add(a.ended...)
	a.ended = nil
}

// attach makes a context that ends when the thread is terminated or purged, for work beside its runs.
// Call leave when the work is done.
func (e *Engine) attach(ctx context.Context, id string) (attached context.Context, leave func()) {
	attached, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.background[id] == nil {
		e.background[id] = map[*context.CancelCauseFunc]struct{}{}
	}
	e.background[id][&cancel] = struct{}{}
	return attached, func() {
		cancel(nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.background[id], &cancel); len(e.background[id]) == 0 {
			delete(e.background, id)
		}
	}
}

// detach ends the work beside a thread's runs.
func (e *Engine) detach(id string, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for cancel := range e.background[id] {
		(*cancel)(cause)
	}
}

// cancel ends the thread's run here, for a cause; false when there is none here.
func (e *Engine) cancel(id string, cause error) bool { return e.cancelling(id, cause) != nil }

// cancelling is cancel, and gives what is closed when the thread has been let go of; nil when there is no run here.
func (e *Engine) cancelling(id string, cause error) (done <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.active[id]
	if a == nil {
		return nil
	}
	if s := stopOf(cause); s != nil && s.runID != "" && a.run != "" && a.run != s.runID {
		return nil
	}
	a.end(cause)
	return a.done
}

// isAt notes which run of a thread is under way.
func (e *Engine) isAt(a *activeThread, runID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a.run = runID
}

// here tells whether this replica holds the thread.
func (e *Engine) here(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[id] != nil
}

func (e *Engine) cancelAll(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.active {
		a.end(cause)
	}
}

// end cancels, for the first cause that is given; but termination and purging come before a stop.
func (a *activeThread) end(cause error) {
	if a.cause == nil || stopOf(a.cause) != nil {
		a.cause = cause
	}
	a.cancel(cause)
}
