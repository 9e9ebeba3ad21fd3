package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
)

// process takes the lease of a thread and executes its runs one after another (THR-13), until the thread rests.
func (e *Engine) process(ctx context.Context, id string) (err error) {
	if !e.queue.TakeNotified(id) {
		if work, err := e.hasWork(ctx, id); err != nil || !work {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	active := &activeThread{cancel: cancel}
	if !e.register(id, active) {
		return nil
	}
	defer e.unregister(ctx, id, active)

	fence, release, err := e.leases.Acquire(ctx, id, e.opts.Owner, cancel)
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	err = e.runAll(ctx, id, fence, active)
	if cause := context.Cause(ctx); cause != nil {
		err = interruption(cause)
	}
	if err != nil {
		// Releasing the lease sends a notification about the work that is left. The delay keeps this replica from
		// taking it up at once.
		e.queue.Delay(id, true)
	}
	release()
	return err
}

// interruption returns the error that remains after a thread was cancelled for cause. It is nil when the run was
// ended on purpose.
func interruption(cause error) error {
	if stopOf(cause) != nil || errors.Is(cause, errTerminal) || errors.Is(cause, errAborted) || errors.Is(cause, errDestroyed) {
		return nil
	}
	return cause
}

// runAll executes run after run until the thread rests or waits.
func (e *Engine) runAll(ctx context.Context, id string, fence *store.Fence, active *activeThread) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	e.fault("lease.acquired")
	for first := true; ; first = false {
		more, err := e.runNext(ctx, id, fence, active, first)
		if err != nil || !more || ctx.Err() != nil {
			return err
		}
	}
}

// hasWork reports, without the lease, whether the thread may have something to do.
func (e *Engine) hasWork(ctx context.Context, id string) (bool, error) {
	items, err := e.store.Inbox(ctx, id)
	if err != nil || e.isWork(items) {
		return err == nil, store.IgnoreNotFound(err)
	}
	r, err := e.store.Run(ctx, id, "")
	if err != nil {
		return false, store.IgnoreNotFound(err)
	}
	return r.Status == store.RunRunning || e.isDue(r), nil
}

// runNext executes one run, or resumes the one that was under way or parked. more is false when the thread rests or
// waits.
func (e *Engine) runNext(ctx context.Context, id string, fence *store.Fence, active *activeThread, first bool) (more bool, err error) {
	active.dirty.Store(false)
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
	case t.TerminatedAt != 0:
		if under {
			return false, e.endTerminated(ctx, id, fence, last)
		}
		return false, nil
	case t.RetainedAt != 0:
		return false, nil // inbox items stay
	}
	if stops, calls, rest := splitStopRequests(items); len(stops) > 0 {
		return true, e.applyStopRequests(ctx, t, fence, active, last, stops, rest, calls)
	}
	var held []store.InboxItem
	if !under || last.Status == store.RunWaiting {
		// These hooks belong to a run that has ended or is at rest, or to external writes.
		hooks, rest := splitHooks(items)
		if len(hooks) > 0 && !e.areHeld(hooks) && !e.passOver(active, hooks, t, last, rest) {
			return true, e.tellAtRest(ctx, t, fence, active, hooks)
		}
		held, items = hooks, rest
	}
	switch {
	case t.Parked && !under:
		return false, nil // inbox items stay
	case len(items) == 0 && (!under || last.Status == store.RunWaiting && !e.isDue(last)):
		return false, nil
	case !under && !startsRun(items): // items that an ended run was waiting for
		return true, e.drop(ctx, id, fence, items)
	}
	if first {
		calls, err := e.abandoned(ctx, t, last, items)
		if err != nil {
			return false, err
		}
		if calls != nil {
			return true, e.applyStopRequests(ctx, t, fence, active, last, nil, items, calls)
		}
	}
	var going *store.Run
	if under {
		going = last
	}
	agent, err := e.agentOf(ctx, t, going)
	if err != nil {
		return false, err
	}
	r := &run{engine: e, log: e.log.WithValues("namespace", t.Namespace, "name", t.Name, "thread", id), fence: fence, active: active}
	r.takeOver(t, agent)
	if under {
		r.record, r.resumed = *last, true
		if r.checkpoint, err = checkpoint.Read(last); err != nil {
			return false, err
		}
	} else {
		r.record = store.Run{ID: newRunID(), ThreadID: id, Agent: t.Agent, Status: store.RunRunning, StartedAt: e.now()}
	}
	if r.conv = e.recent.Take(work); r.conv == nil {
		if r.conv, err = transcript.Load(ctx, e.store, t, e.opts.Limits.ContextMessages); err != nil {
			return false, err
		}
	}
	r.seen = t.LastSeq
	if !under { // a resumed run has yet to read the inbox
		r.known = t.LastSeq
	}
	e.isAt(active, r.record.ID)
	e.followEnded(active) // the lease now belongs to the next run
	err = r.execute(ctx, append(held, items...))
	if err == nil && r.record.Status.Ended() && r.known != 0 {
		e.recent.Keep(t, r.conv, r.known, e.opts.Limits.ContextMessages)
	}
	if err == nil && r.leavesOverdue() {
		return true, nil
	}
	// Items that came since have marked the thread dirty. If the notification is late or was lost, releasing the
	// lease sends another one.
	return r.record.Status.Ended() && (active.dirty.Load() || r.withholds), err
}

// startsRun reports whether any inbox item starts a run of a thread at rest.
func startsRun(items []store.InboxItem) bool {
	for _, item := range items {
		if item.Kind != store.InboxResume && item.Kind != store.InboxApproval {
			return true
		}
	}
	return false
}

// drop removes items from the inbox.
func (e *Engine) drop(ctx context.Context, id string, fence *store.Fence, items []store.InboxItem) error {
	return e.store.Apply(ctx, id, fence, dequeueOf(items))
}

func dequeueOf(items []store.InboxItem) *store.Dequeue {
	gone := &store.Dequeue{}
	for _, item := range items {
		gone.Seqs = append(gone.Seqs, item.Seq)
	}
	return gone
}

// endTerminatedRun ends the run that a terminated thread has left and that nobody executes.
func (e *Engine) endTerminatedRun(ctx context.Context, id string) error {
	last, err := e.store.Run(ctx, id, "")
	if err != nil || last.Status.Ended() {
		return store.IgnoreNotFound(err)
	}
	return store.IgnoreNotFound(e.endTerminated(ctx, id, nil, last))
}

// endTerminated records that a run ended because its thread was terminated.
func (e *Engine) endTerminated(ctx context.Context, id string, fence *store.Fence, r *store.Run) error {
	r.Status, r.Reason, r.EndedAt, r.State = store.RunTerminated, failure.ReasonTerminated, e.now(), e.postRun.Mark(nil, nil)
	if err := e.store.Apply(ctx, id, fence, &store.PutRun{Run: *r}); err != nil {
		return err
	}
	if postrun.Marked(r) {
		e.postRun.Add(store.RunRef{ThreadID: id, RunID: r.ID})
	}
	return nil
}
