package dispatch

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// stoppers is how many threads with a notification are checked at once, and observers how many of the other threads.
	stoppers  = 8
	observers = 2
)

// Observe checks the threads that this replica works for when another replica may have terminated or purged them, or
// stopped their run. Threads with a notification do not wait for the others. It returns when ctx ends.
func (d *Dispatcher) Observe(ctx context.Context) {
	var workers sync.WaitGroup
	for queue, n := range map[workqueue.TypedInterface[string]]int{d.stopped: stoppers, d.observed: observers} {
		defer context.AfterFunc(ctx, queue.ShutDown)()
		for range n {
			workers.Go(func() { d.observeThreads(ctx, queue) })
		}
	}
	workers.Wait()
}

// observeThreads observes the threads of a queue, one after the other, until the queue is shut down. Errors are logged: the next sweep
// checks the thread again.
func (d *Dispatcher) observeThreads(ctx context.Context, queue workqueue.TypedInterface[string]) {
	for {
		id, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := d.observe(ctx, id); err != nil && ctx.Err() == nil {
			d.opts.Log.Error(err, "cannot check whether a thread has ended elsewhere; the next sweep checks again", "thread", id)
		}
		queue.Done(id)
	}
}

// observe ends this replica's work for a thread if another replica decided that.
func (d *Dispatcher) observe(ctx context.Context, id string) error {
	t, err := d.opts.Store.Thread(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		d.opts.Stops.Abort(id, "the thread is gone")
		return nil
	case err != nil:
		return err
	case t.Deleting, t.RetainedAt != 0:
		d.opts.Stops.Abort(id, "the Thread object was deleted")
		return nil
	case t.TerminatedAt != 0:
		d.opts.Active.Detach(id, cancelcause.ErrTerminal)
		d.opts.Active.Cancel(id, cancelcause.ErrTerminal)
		return nil
	}
	if err := d.opts.Stops.CancelIfRequested(ctx, id); err != nil {
		return err
	}
	// A stop, or the end of the conversation, revokes the lease of the replica that executes the run.
	return d.opts.Leases.Check(ctx, id)
}

// observeAll queues all threads that this replica works for, so that Observe checks them too.
func (d *Dispatcher) observeAll() {
	for _, id := range d.opts.Active.IDs() {
		d.observed.Add(id)
	}
}

// notificationsLost handles the store's message that it may have lost notifications. It wakes the effect worker, has every active run read its
// inbox again, checks all threads that this replica works for, and starts a sweep.
func (d *Dispatcher) notificationsLost() {
	d.opts.Effects.HandleChange(store.AnyEffect, "")
	d.opts.PostRun.Look()
	d.opts.Active.MarkAllDirty()
	d.observeAll()
	select {
	case d.sweepNow <- struct{}{}:
	default:
	}
}
