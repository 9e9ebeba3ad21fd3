package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/quota"
	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// runnableBatch is the number of threads that one search for lost work takes, and pageEvery the pause before the next
	// search when there are more.
	runnableBatch = 1000
	pageEvery     = time.Second
	// refusedSweeps is for how many intervals the search leaves out a thread whose definitions were not ready.
	refusedSweeps = 10
)

// Notify receives the notifications of the store. It must not block.
func (d *Dispatcher) Notify(h store.Notification) {
	if h.Everything() && h.Remote {
		d.notificationsLost()
		return
	}
	if (h.Remote && h.Changed&store.ChangedThread != 0 || h.Changed&store.ChangedStop != 0) && d.opts.Active.IsWorking(h.ThreadID) {
		d.stopped.Add(h.ThreadID)
	}
	if h.Changed&store.ChangedThread != 0 && !d.opts.Active.IsActive(h.ThreadID) {
		d.opts.Recent.Drop(h.ThreadID) // the conversation may have been cleared, or the thread purged
	}
	if h.Changed&store.ChangedTasks != 0 && h.Remote {
		d.opts.PostRun.Look()
	}
	if h.Changed&store.ChangedFiring != 0 {
		d.opts.Effects.HandleChange(h.EffectID, h.ThreadID)
		if h.ThreadID == "" {
			return
		}
	}
	if h.Changed&store.ChangedInbox == 0 {
		return
	}
	switch {
	case d.opts.Active.MarkDirty(h.ThreadID): // its worker looks at the inbox
	case h.Remote:
		d.elsewhere.hear(h.ThreadID)
	case !d.opts.Queue.IsDelayed(h.ThreadID), !h.Released && d.refused.Has(h.ThreadID): // what has come may need neither the definitions nor room in a quota
		d.opts.Queue.AddNotified(h.ThreadID)
	}
}

// Dispatch passes threads to workers until the queue is shut down, and returns when no worker has one any more.
func (d *Dispatcher) Dispatch(ctx context.Context) {
	d.opts.Queue.Run(ctx, d.handle)
	d.opts.Queue.Wait()
}

// handle processes a thread and queues it again if needed.
func (d *Dispatcher) handle(ctx context.Context, id string) {
	if d.opts.Queue.WaitsForModel(id) {
		d.opts.Queue.Forget(id)
		return
	}
	d.opts.Queue.Delay(id, false)
	of, err := d.process(ctx, id)
	var notReady *definition.NotReadyError
	var wait *quota.WaitError
	switch {
	case err == nil, errors.Is(err, cancelcause.ErrShutdown), errors.Is(err, model.ErrDeferred):
		d.refused.Forget(id)
		d.opts.Queue.Forget(id)
	case errors.As(err, &notReady):
		// The thread keeps its inbox. Wake is called when its Agent becomes ready. Something else that was missing may be back already.
		d.opts.Queue.Forget(id)
		d.opts.Queue.AddAfter(id, d.refused.Add(id))
		d.opts.Log.V(1).Info("thread waits for its definitions", append(of, "reason", notReady.Reason, "message", notReady.Message)...)
	case errors.As(err, &wait):
		// The thread keeps its inbox. The quotas wake it when there is room.
		d.refused.Add(id)
		d.opts.Queue.Forget(id)
		d.opts.Quotas.AddWaiting(wait, id)
	case isLost(err):
		metrics.LeaseLosses.Inc()
		d.opts.Log.Info("thread was lost to another holder", of...)
		d.refused.Forget(id)
		d.opts.Queue.Forget(id)
		d.opts.Queue.AddAfter(id, d.opts.LeaseTTL/3)
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrLeaseHeld):
		// The holder is another replica, or one that is lost.
		d.refused.Forget(id)
		d.opts.Queue.Forget(id)
		d.elsewhere.want(id)
	default:
		d.refused.Forget(id)
		d.opts.Log.Error(err, "run was interrupted and will be resumed", of...)
		d.opts.Queue.Retry(id)
	}
}

// Sweep looks for threads whose notification or holder was lost: at the start, every SweepInterval, and when
// notifications may have been missed.
func (d *Dispatcher) Sweep(ctx context.Context) {
	var place store.WorkPlace
	again := false // notifications may have been missed since this search began
	for {
		wait := d.opts.SweepInterval
		ids, next, err := d.opts.Store.RunnablePage(ctx, place, runnableBatch)
		if err != nil {
			next = place
			if ctx.Err() == nil {
				d.opts.Log.Error(err, "cannot look for threads with work")
			}
		}
		// The next search goes on behind these, so that threads which cannot run hide none of the others.
		if place = next; place != nil || err != nil {
			wait = min(wait, pageEvery)
		}
		for _, id := range ids {
			if !d.refused.Has(id) {
				d.opts.Queue.Add(id)
			}
		}
		d.refused.Expire()
		if place == nil && err == nil {
			d.observeAll()
			if again {
				wait, again = min(wait, pageEvery), false
			}
		}
		timer := d.opts.Clock.NewTimer(wait)
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C():
				waits = false
			case <-d.sweepNow:
				if again = place != nil; !again { // else a connection that is lost again and again would keep the search from its end
					timer.Stop()
					waits = false
				}
			}
		}
	}
}

// LetGo lets go of a thread after its lease was released. It queues the thread again when a notification came in
// the meantime. It also carries out a cancellation that came too late for the run, while the run was being parked.
func (d *Dispatcher) LetGo(ctx context.Context, id string, a *activethreads.Active) {
	defer close(a.Done)
	d.opts.PostRun.Add(a.TakeEndedRuns()...)
	cause := d.opts.Active.Remove(id, a)
	if cause != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cancelcause.ReleaseTimeout)
		defer cancel()
	}
	if stopped := cancelcause.StopOf(cause); stopped != nil {
		if !stopped.Written && stopped.Err == nil {
			if _, err := d.opts.Stops.EndElsewhere(ctx, id, stopped); err != nil {
				stopped.Err = err
				d.opts.Log.Error(err, "cannot stop a run", logValues(id, a)...)
			}
		}
		d.Wake(id) // for messages that came since; what the run may have waited for does not concern them
		return
	}
	if errors.Is(cause, cancelcause.ErrDestroyed) {
		d.Wake(id) // for items that came since, whose notification the run may have taken for its own
		return
	}
	if errors.Is(cause, cancelcause.ErrTerminal) {
		if err := d.opts.Stops.EndTerminatedRun(ctx, id); err != nil {
			d.opts.Log.Error(err, "cannot end the run of a terminated thread", logValues(id, a)...)
		}
		return
	}
	if a.Dirty.Load() && !d.opts.Queue.IsDelayed(id) {
		d.opts.Queue.AddNotified(id)
	}
}
