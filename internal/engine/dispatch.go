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

// runnableBatch is the number of threads that one search for lost work takes.
const runnableBatch = 1000

// activeThread is a thread that this replica holds.
type activeThread struct {
	cancel context.CancelCauseFunc
	// cause is why the thread was cancelled; nil when it was not. Guarded by the engine's lock.
	cause error
	// run is the id of the run that is under way; "" while it is not known. Guarded by the engine's lock.
	run string
	// done is closed when this replica has let go of the thread.
	done chan struct{}
	// dirty reports that the inbox may have changed since the holder last read it.
	dirty atomic.Bool
	// onDirty is called when dirty is set; nil for nothing.
	onDirty atomic.Pointer[func()]
	// passedOver is the sequence number of the newest inbox item that a run has processed before held hooks: 1 for a
	// run that was due by its time, 0 for none. Only the holder uses it.
	passedOver int64
	// ended are runs whose post-run tasks begin when this replica has released the lease. Only the holder uses it.
	ended []store.RunRef
}

// notify receives the notifications of the store. It must not block.
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
		e.recent.Drop(h.ThreadID) // the conversation may have been cleared, or the thread purged
	}
	if h.Changed&store.ChangedFiring != 0 {
		e.effects.Wake()
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

// dispatchLoop passes threads to workers until the queue is shut down.
func (e *Engine) dispatchLoop(ctx context.Context) { e.queue.Run(ctx, e.handle) }

// Load returns how many threads this replica runs, and how many wait for a worker.
func (e *Engine) Load() (running, waiting int) {
	return e.queue.Load()
}

// handle processes a thread and queues it again if needed.
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
		// The thread keeps its inbox. Wake is called when the definitions become ready.
		e.queue.Forget(id)
		e.log.V(1).Info("thread waits for its definitions", "thread", id, "reason", notReady.Reason, "message", notReady.Message)
	case errors.Is(err, store.ErrFenced), errors.Is(err, schedule.ErrLeaseLost):
		e.log.Info("thread was lost to another holder", "thread", id)
		e.queue.Forget(id)
		e.queue.AddAfter(id, e.opts.LeaseTTL/3)
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrLeaseHeld):
		// The holder is another replica, or one that is lost. Look again earlier than the sweep would.
		e.queue.AddAfter(id, e.opts.LeaseTTL/3)
	default:
		e.log.Error(err, "run was interrupted and will be resumed", "thread", id)
		e.queue.Retry(id)
	}
}

// sweepLoop looks for threads whose notification or holder was lost: at the start, every SweepInterval, and when
// notifications may have been missed.
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

// register makes a thread active. It returns false when the thread is active already.
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

// unregister lets go of a thread after its lease was released. It queues the thread again when a notification came in
// the meantime. It also carries out a cancellation that came too late for the run, while the run was being parked.
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
		e.queue.Add(id) // for messages that came since
		return
	}
	if errors.Is(cause, errDestroyed) {
		e.queue.Add(id) // for items that came since, whose notification the run may have taken for its own
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

// followEnded starts the post-run tasks of the runs that have ended since its last call. Their lease must be released
// or belong to the next run.
func (e *Engine) followEnded(a *activeThread) {
	e.postRun.Add(a.ended...)
	a.ended = nil
}

// attach returns a context that ends when the thread is terminated or purged, for background work beside the thread's
// runs. Call leave when the work is done.
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

// detach cancels the background work of a thread.
func (e *Engine) detach(id string, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for cancel := range e.background[id] {
		(*cancel)(cause)
	}
}

// cancel cancels the thread on this replica for a cause. It returns false when this replica does not hold the thread.
func (e *Engine) cancel(id string, cause error) bool { return e.cancelling(id, cause) != nil }

// cancelling does what cancel does, and returns a channel that is closed when the thread was let go of; nil when
// there was nothing to cancel.
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

// isAt records which run of a thread is under way.
func (e *Engine) isAt(a *activeThread, runID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a.run = runID
}

// here reports whether this replica holds the thread.
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

// end cancels the thread. The first cause counts, but termination and purging replace a stop. The caller holds the
// engine's lock.
func (a *activeThread) end(cause error) {
	if a.cause == nil || stopOf(a.cause) != nil {
		a.cause = cause
	}
	a.cancel(cause)
}
