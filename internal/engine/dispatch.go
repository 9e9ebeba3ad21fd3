package engine

import (
	"context"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ending"
	"github.com/skein-dev/skein/internal/engine/held"
	"github.com/skein-dev/skein/internal/engine/quota"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// runnableBatch is the number of threads that one search for lost work takes, and pageEvery the pause before the next
	// search when there are more.
	runnableBatch = 1000
	pageEvery     = time.Second
	// refusedSweeps is how many intervals of the search a thread is left out that was refused for its definitions.
	refusedSweeps = 10
)

// notify receives the notifications of the store. It must not block.
func (e *Engine) notify(h store.Notification) {
	if h.Everything() && h.Remote {
		e.missed()
		return
	}
	if h.Remote && h.Changed&store.ChangedThread != 0 && e.held.Working(h.ThreadID) || h.Changed&store.ChangedStop != 0 && e.held.Here(h.ThreadID) {
		e.stopped.Add(h.ThreadID)
	}
	if h.Changed&store.ChangedThread != 0 && !e.held.Here(h.ThreadID) {
		e.recent.Drop(h.ThreadID) // the conversation may have been cleared, or the thread purged
	}
	if h.Changed&store.ChangedTasks != 0 && h.Remote {
		e.postRun.Look()
	}
	if h.Changed&store.ChangedFiring != 0 {
		e.effects.Changed(h.EffectID)
		if h.ThreadID == "" {
			return
		}
	}
	if h.Changed&store.ChangedInbox == 0 {
		return
	}
	a := e.held.Get(h.ThreadID)
	switch {
	case a != nil:
		a.MarkDirty()
	case !e.queue.Delayed(h.ThreadID):
		e.queue.AddNotified(h.ThreadID)
	}
}

// dispatchLoop passes threads to workers until the queue is shut down, and returns when no worker has one any more.
func (e *Engine) dispatchLoop(ctx context.Context) {
	e.queue.Run(ctx, e.handle)
	e.queue.Wait()
}

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
	var wait *quota.WaitError
	switch {
	case err == nil, errors.Is(err, ending.ErrShutdown), errors.Is(err, model.ErrLater):
		e.refused.Forget(id)
		e.queue.Forget(id)
	case errors.As(err, &notReady):
		// The thread keeps its inbox. Wake is called when the definitions become ready.
		e.refused.Add(id)
		e.queue.Forget(id)
		e.log.V(1).Info("thread waits for its definitions", "thread", id, "reason", notReady.Reason, "message", notReady.Message)
	case errors.As(err, &wait):
		// The thread keeps its inbox. The quotas wake it when there is room.
		e.refused.Add(id)
		e.queue.Forget(id)
		e.quotas.Wait(wait.Namespace, id)
	case errors.Is(err, store.ErrFenced), errors.Is(err, schedule.ErrLeaseLost):
		metrics.LeaseLosses.Inc()
		e.log.Info("thread was lost to another holder", "thread", id)
		e.queue.Forget(id)
		e.queue.AddAfter(id, e.opts.LeaseTTL/3)
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrLeaseHeld):
		// The holder is another replica, or one that is lost.
		e.queue.Forget(id)
		e.elsewhere.add(id)
	default:
		e.log.Error(err, "run was interrupted and will be resumed", "thread", id)
		e.queue.Retry(id)
	}
}

// sweepLoop looks for threads whose notification or holder was lost: at the start, every SweepInterval, and when
// notifications may have been missed.
func (e *Engine) sweepLoop(ctx context.Context) {
	var place store.WorkPlace
	for {
		wait := e.opts.SweepInterval
		ids, next, err := e.store.RunnablePage(ctx, place, runnableBatch)
		if err != nil && ctx.Err() == nil {
			e.log.Error(err, "cannot look for threads with work")
		}
		// The next search goes on behind these, so that threads which cannot run hide none of the others.
		if place = next; place != nil {
			wait = min(wait, pageEvery)
		}
		for _, id := range ids {
			if !e.refused.Has(id) {
				e.queue.Add(id)
			}
		}
		e.refused.Expire()
		if place == nil {
			e.observeAll()
		}
		timer := e.opts.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-e.sweepNow:
			timer.Stop()
			place = nil
		}
	}
}

// unregister lets go of a thread after its lease was released. It queues the thread again when a notification came in
// the meantime. It also carries out a cancellation that came too late for the run, while the run was being parked.
func (e *Engine) unregister(ctx context.Context, id string, a *held.Active) {
	defer close(a.Done)
	e.followEnded(a)
	cause := e.held.Remove(id, a)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if stopped := ending.StopOf(cause); stopped != nil {
		if !stopped.Written && stopped.Err == nil {
			if _, err := e.stops.EndElsewhere(ctx, id, stopped); err != nil {
				stopped.Err = err
				e.log.Error(err, "cannot stop a run", "thread", id)
			}
		}
		e.queue.Add(id) // for messages that came since
		return
	}
	if errors.Is(cause, ending.ErrDestroyed) {
		e.queue.Add(id) // for items that came since, whose notification the run may have taken for its own
		return
	}
	if errors.Is(cause, ending.ErrTerminal) {
		if err := e.stops.EndTerminatedRun(ctx, id); err != nil {
			e.log.Error(err, "cannot end the run of a terminated thread", "thread", id)
		}
		return
	}
	if a.Dirty.Load() && !e.queue.Delayed(id) {
		e.queue.AddNotified(id)
	}
}

// followEnded starts the post-run tasks of the runs that have ended since its last call. Their lease must be released
// or belong to the next run.
func (e *Engine) followEnded(a *held.Active) {
	e.postRun.Add(a.Ended...)
	a.Ended = nil
}
