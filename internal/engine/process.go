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

// doNext does the next piece of work of a thread: it applies a stop, calls hooks, compacts, or executes or resumes a run. more reports
// whether to call it again under the same lease. It is false when the thread rests or waits. first says that this is the first call under
// the lease. Only then does doNext check whether a parent still waits for the thread.
func (e *Engine) doNext(ctx context.Context, id string, fence *store.Fence, active *activethreads.Active, first bool) (more bool, err error) {
	if err := e.drain.checkInterrupted(); err != nil {
		return false, err
	}
	active.Dirty.Store(false)
	work, err := e.store.Work(ctx, id)
	if err != nil {
		return false, store.IgnoreNotFound(err)
	}
	t, last := work.Thread, work.Run
	active.About = telemetry.OfThread(t.Namespace, t.Name, t.ID)
	under := isUnderWay(last)
	if !first && len(work.Inbox) == 0 && !under {
		return false, nil // the last run has just ended, and nothing waits
	}
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
	items, delayed, withheld, done, err := e.prepareRun(ctx, work, fence, active)
	if done {
		return true, err
	}
	switch {
	case t.Parked && !under:
		return false, nil // inbox items stay
	case len(items) == 0 && (!under || last.Status == store.RunWaiting && !dispatch.Due(last, e.now())):
		return false, e.runs.Withhold(ctx, id, fence, withheld)
	case !under && !dispatch.StartsRun(items): // items that an ended run was waiting for
		return true, e.store.Apply(ctx, id, fence, runlog.DequeueOf(items))
	}
	if first {
		calls, err := e.stops.AbandonedCalls(ctx, t, last, items)
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
	ctx, end := e.opts.Memory.Begin(ctx, t.Namespace)
	defer end()
	agent, err := definition.ForRun(ctx, e.opts.Definitions, t, going)
	if err != nil {
		return false, err
	}
	if err := e.quotas.Admit(ctx, t, fence, active, under); err != nil {
		return false, err
	}
	return e.runs.Execute(ctx, run.Work{Work: work, Fence: fence, Active: active, Agent: agent, Going: going, Items: items, Delayed: delayed})
}

// prepareRun does what precedes a run: it applies stop requests, calls the hooks of a thread at rest, or compacts. done reports whether
// there was something of that, and err how it went. Otherwise items are the inbox items that are left for a run, delayed the calls of
// hooks that it makes later, and withheld the messages that it leaves in the inbox while it waits.
func (e *Engine) prepareRun(ctx context.Context, work *store.Work, fence *store.Fence, active *activethreads.Active) (items, delayed, withheld []store.InboxItem, done bool, err error) {
	t, last := work.Thread, work.Run
	atRest := !isUnderWay(last) || last.Status == store.RunWaiting
	stops, calls, items := stop.Split(work.Inbox)
	if len(stops) > 0 {
		return nil, nil, nil, true, e.stops.Apply(ctx, t, fence, active, last, stops, items, calls)
	}
	if isUnderWay(last) && last.Status == store.RunWaiting {
		withheld, items = run.SplitWithheld(items)
	}
	if atRest {
		// These hooks belong to a run that has ended or is at rest, or to external writes.
		due, rest := hooks.Split(items)
		if len(due) > 0 && !e.hooks.AreDelayed(due) && !dispatch.PassOver(active, due, t, last, rest, e.now()) {
			return nil, nil, nil, true, e.hooks.CallAtRest(ctx, t, fence, active.WhenDirty, due)
		}
		delayed, items = due, rest
	}
	if requests, rest := compaction.Split(items); len(requests) > 0 {
		if atRest {
			return nil, nil, nil, true, e.runs.CompactAtRest(ctx, t, fence, active, last, requests)
		}
		items = rest // the run finds them before its next step
	}
	return items, delayed, withheld, false, nil
}

// isUnderWay reports whether r is a run that has not ended. nil is none.
func isUnderWay(r *store.Run) bool { return r != nil && !r.Status.Ended() }
