package engine

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/compaction"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/deltas"
	"github.com/skein-dev/skein/internal/engine/dispatch"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/engine/request"
	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/engine/runcode"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
)

// newRun returns a run of a thread that is not begun or resumed yet.
func (e *Engine) newRun(t *store.Thread, fence *store.Fence, active *activethreads.Active, log logr.Logger) *run {
	r := &run{engine: e, log: log, Role: role.Role{Thread: t}, fence: fence, active: active}
	r.code = runcode.New(runcode.Options{Executions: e.executions, Env: e.env, Threads: e.threads, Log: &r.log, Fence: fence}, &r.Role, &r.record)
	r.hooks = hooks.NewRun(e.hooks, hooksPort{r}, log)
	r.requests = request.NewMaker(request.Options{Threads: e.threads, Definitions: e.opts.Definitions, Models: e.opts.Models, Log: &r.log, Redact: e.opts.Redact, State: r.code.State}, &r.Role)
	r.streams = deltas.Options{Store: e.store, Clock: e.opts.Clock, Fence: fence, Run: &r.record, Fault: e.fault}
	r.compactor = compaction.New(compaction.Options{
		Port: compactionPort{r}, Role: &r.Role, Requests: r.requests, Store: e.store, Log: &r.log, Timeout: e.opts.CompactionTimeout, Now: e.now,
	})
	return r
}

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
	case under && e.compat.HasRun(id, last):
		return false, nil
	}
	if stops, calls, rest := stop.Split(items); len(stops) > 0 {
		return true, e.stops.Apply(ctx, t, fence, active, last, stops, rest, calls)
	}
	var held []store.InboxItem
	if !under || last.Status == store.RunWaiting {
		// These hooks belong to a run that has ended or is at rest, or to external writes.
		due, rest := hooks.Split(items)
		if len(due) > 0 && !e.hooks.AreHeld(due) && !dispatch.PassOver(active, due, t, last, rest, e.now()) {
			return true, e.hooks.CallAtRest(ctx, t, fence, active.WhenDirty, due)
		}
		held, items = due, rest
	}
	if orders, rest := compaction.Split(items); len(orders) > 0 {
		if !under || last.Status == store.RunWaiting {
			return true, e.compactAtRest(ctx, t, fence, active, last, orders)
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
	r := e.newRun(t, fence, active, e.log.WithValues("namespace", t.Namespace, "name", t.Name, "thread", id))
	r.takeOver(t, agent)
	if under {
		r.record, r.resumed = *last, true
		if r.Checkpoint, err = runstate.Read(last); err != nil {
			return false, err
		}
	} else {
		r.record = store.Run{ID: runlog.NewRunID(), ThreadID: id, Agent: t.Agent, Status: store.RunRunning, StartedAt: e.now()}
		r.Checkpoint.Telemetry = runtrace.Begin(items)
	}
	ctx = r.Checkpoint.Telemetry.With(ctx)
	r.log = r.log.WithValues(r.Checkpoint.Telemetry.LogValues()...)
	if r.conv = e.recent.Take(work); r.conv == nil {
		if r.conv, err = transcript.Load(ctx, e.store, t, e.opts.Limits.ContextMessages); err != nil {
			return false, err
		}
	} else if err := r.conv.Draw(ctx); err != nil {
		return false, err
	}
	r.seen = t.LastSeq
	if !under { // a resumed run has yet to read the inbox
		r.known = t.LastSeq
	}
	e.active.IsAt(active, r.record.ID)
	e.postRun.Add(active.TakeEnded()...) // the lease now belongs to the next run
	err = r.execute(ctx, append(held, items...))
	if err == nil && r.record.Status.Ended() && r.known != 0 {
		e.recent.Keep(t, r.conv, r.known, e.opts.Limits.ContextMessages)
	}
	if err == nil && r.hooks.LeavesOverdue() {
		return true, nil
	}
	// Items that came since have marked the thread dirty. If the notification is late or was lost, releasing the
	// lease sends another one.
	return r.record.Status.Ended() && (active.Dirty.Load() || r.withholds || len(r.compactor.Pending()) > 0), err
}
