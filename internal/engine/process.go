package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/compaction"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/dispatch"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/engine/run"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
)

// runNext executes one run, or resumes the one that was under way or parked. more is false when the thread rests or
// waits.
func (e *Engine) runNext(ctx context.Context, id string, fence *store.Fence, active *activethreads.Active, first bool) (more bool, err error) {
	if err := e.drain.interrupted(); err != nil {
		return false, err
	}
	active.Dirty.Store(false)
	work, err := e.store.Work(ctx, id)
	if err != nil {
		return false, store.IgnoreNotFound(err)
	}
	t, items, last := work.Thread, work.Inbox, work.Run
	active.About = telemetry.OfThread(t.Namespace, t.Name, t.ID)
	if !first && len(items) == 0 {
		return false, nil // the last run has just ended, and nothing waits
	}
	under := last != nil && !last.Status.Ended()
	switch {
	case t.Deleting:
		return false, nil // nothing more is done for it
	case t.TerminatedAt != 0:
		if under {
			return false, e.stops.EndTerminated(ctx, t, fence, last)
		}
		return false, nil
	case t.RetainedAt != 0:
		return false, nil // inbox items stay
	case under && e.compat.LeavesRun(id, last):
		return false, nil
	}
	if stops, calls, rest := stop.Split(items); len(stops) > 0 {
		return true, e.stops.Apply(ctx, t, fence, active, last, stops, rest, calls)
	}
	var delayed []store.InboxItem
	if !under || last.Status == store.RunWaiting {
		// These hooks belong to a run that has ended or is at rest, or to external writes.
		due, rest := hooks.Split(items)
		if len(due) > 0 && !e.hooks.AreDelayed(due) && !dispatch.PassOver(active, due, t, last, rest, e.now()) {
			return true, e.hooks.CallAtRest(ctx, t, fence, active.WhenDirty, due)
		}
		delayed, items = due, rest
	}
	if orders, rest := compaction.Split(items); len(orders) > 0 {
		if !under || last.Status == store.RunWaiting {
			return true, e.runs.CompactAtRest(ctx, t, fence, active, last, orders)
		}
		items = rest // the run finds them before its next step
	}
	switch {
	case t.Parked && !under:
		return false, nil // inbox items stay
	case len(items) == 0 && (!under || last.Status == store.RunWaiting && !dispatch.Due(last, e.now())):
		return false, nil
	case !under && !dispatch.StartsRun(items): // items that an ended run was waiting for
		return true, e.store.Apply(ctx, id, fence, runlog.DequeueOf(items))
	}
	if first {
		calls, err := e.stops.Abandoned(ctx, t, last, items)
		if err != nil {
			return false, err
		}
		if calls != nil {
			return true, e.stops.Apply(ctx, t, fence, active, last, nil, items, calls)
		}
	}
	var going *store.Run
	if under {
		going = last
	}
	ctx, done := e.opts.Memory.Begin(ctx, t.Namespace)
	defer done()
	agent, err := definition.ForRun(ctx, e.opts.Definitions, t, going)
	if err != nil {
		return false, err
	}
	if err := e.quotas.Admit(ctx, t, fence, active, under); err != nil {
		return false, err
	}
	return e.runs.Execute(ctx, run.Work{Work: work, Fence: fence, Active: active, Agent: agent, Going: going, Items: items, Delayed: delayed})
}
