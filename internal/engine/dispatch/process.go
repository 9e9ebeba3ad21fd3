package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
)

// process takes the lease of a thread and executes its runs one after another (THR-13), until the thread rests. of has the keys and
// values of log lines about the thread, as far as they are known.
func (d *Dispatcher) process(ctx context.Context, id string) (of []any, err error) {
	of = logValues(id, nil)
	if err := d.opts.Interrupted(); err != nil {
		return of, err
	}
	// A notification may be about something that this replica leaves for another one.
	if !d.opts.Queue.TakeNotified(id) || d.opts.Compat.Has(id) {
		if work, err := d.hasWork(ctx, id); err != nil || !work {
			return of, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	active := activethreads.NewActive(cancel)
	if !d.opts.Active.Register(id, active) {
		// A stop of its run has the thread, and queues it again for what the mark stands for.
		if !d.opts.Active.MarkDirty(id) {
			d.opts.Queue.AddNotified(id) // it was let go in this moment
		}
		return of, nil
	}
	defer d.LetGo(ctx, id, active)

	fence, release, err := d.opts.Leases.Acquire(ctx, id, d.opts.Owner, cancel)
	if err != nil {
		return of, store.IgnoreGone(err) // no replica works on a thread whose object was deleted
	}
	err = d.runAll(ctx, id, fence, active)
	if cause := context.Cause(ctx); cause != nil {
		err = interruption(cause)
	}
	if err != nil && (!isLost(err) || errors.Is(err, schedule.ErrLeaseExpired)) {
		// Releasing the lease sends a notification about the work that is left. The delay keeps this replica from
		// taking it up at once.
		d.opts.Queue.Delay(id, true)
	}
	release()
	d.opts.Quotas.End(active.Namespace)
	return logValues(id, active), err
}

// isLost reports whether another holder has the thread, or may have it because the lease has expired. When another one has it, releasing the
// lease changes nothing and tells nothing.
func isLost(err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, schedule.ErrLeaseLost)
}

// logValues returns the keys and values of log lines about a thread. a is nil while no worker has it.
func logValues(id string, a *activethreads.Active) []any {
	if a == nil || len(a.About) == 0 {
		return telemetry.OfThread("", "", id)
	}
	return slices.Clone(a.About)
}

// interruption returns the error that remains after a thread was cancelled for cause. It is nil when the run was
// ended on purpose.
func interruption(cause error) error {
	if cancelcause.StopOf(cause) != nil || errors.Is(cause, cancelcause.ErrTerminal) || errors.Is(cause, cancelcause.ErrAborted) || errors.Is(cause, cancelcause.ErrDestroyed) {
		return nil
	}
	return cause
}

// runAll executes run after run until the thread rests or waits.
func (d *Dispatcher) runAll(ctx context.Context, id string, fence *store.Fence, active *activethreads.Active) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	d.fault("lease.acquired")
	for first := true; ; first = false {
		more, err := d.opts.Next(ctx, id, fence, active, first)
		if err != nil || !more || ctx.Err() != nil {
			return err
		}
	}
}

// hasWork reports, without the lease, whether the thread may have something to do.
func (d *Dispatcher) hasWork(ctx context.Context, id string) (bool, error) {
	items, err := d.opts.Store.Inbox(ctx, id)
	if err != nil {
		return false, store.IgnoreNotFound(err)
	}
	work := isWork(items, d.now())
	if work && !d.opts.Compat.Has(id) {
		return true, nil
	}
	r, err := d.opts.Store.Run(ctx, id, "")
	if err != nil {
		return work && errors.Is(err, store.ErrNotFound), store.IgnoreNotFound(err)
	}
	return (work || r.Status == store.RunRunning || Due(r, d.now())) && !d.opts.Compat.LeavesRun(id, r), nil
}

// isWork reports whether any inbox item can be processed now.
func isWork(items []store.InboxItem, now int64) bool {
	return slices.ContainsFunc(items, func(item store.InboxItem) bool { return item.DelayedUntil <= now })
}

// Due reports whether the time that a parked run waits for has come.
func Due(r *store.Run, now int64) bool {
	return r.Status == store.RunWaiting && r.WakeAt != 0 && r.WakeAt <= now
}

// StartsRun reports whether any inbox item starts a run of a thread at rest.
func StartsRun(items []store.InboxItem) bool {
	for _, item := range items {
		if item.Kind != store.InboxResume && item.Kind != store.InboxApproval {
			return true
		}
	}
	return false
}

// PassOver reports whether a waiting run precedes hook retries that are due, and records that it does. The run does not need to wait for a
// sandbox as they do. It precedes them once for each reason to run, so that items which stay in the inbox do not keep
// hooks from their turn.
func PassOver(active *activethreads.Active, hooks []store.InboxItem, t *store.Thread, last *store.Run, rest []store.InboxItem, now int64) bool {
	if hooks[0].DelayedUntil == 0 {
		return false
	}
	if under := last != nil && !last.Status.Ended(); under && len(rest) == 0 && !Due(last, now) || !under && (t.Parked || !StartsRun(rest)) {
		return false
	}
	newest := int64(1) // the run is due by its time, without an item
	if len(rest) > 0 {
		newest = rest[len(rest)-1].Seq
	}
	if newest <= active.PassedOver {
		return false
	}
	active.PassedOver = newest
	return true
}
