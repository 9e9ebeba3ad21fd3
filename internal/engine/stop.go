package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/ending"
	"github.com/skein-dev/skein/internal/engine/held"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Stop ends the run of a thread at a user's request: a run under way on this or another replica, or a waiting one.
// The run ends as stopped (RUN-04). Messages that wait in the inbox stay there until a user sends another message or
// calls Continue (MSG-08). Both facts are on disk when Stop returns, so a message sent afterwards starts a run.
// Without a run Stop does nothing.
func (e *Engine) Stop(ctx context.Context, threadID, reason string) error {
	_, err := e.endRun(ctx, threadID, &ending.Stop{Reason: reason})
	return err
}

const (
	// endTries bounds the attempts to end a run that moves from one holder to another.
	endTries = 200
	// endPause is the pause between two attempts.
	endPause = 5 * time.Millisecond
)

// endRun ends the run of a thread on any replica, and reports whether it did. It reports false when no run is under
// way, or none with the requested id.
func (e *Engine) endRun(ctx context.Context, threadID string, s *ending.Stop) (ended bool, err error) {
	for range endTries {
		if done := e.held.Cancelling(threadID, s); done != nil {
			select {
			case <-done:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
			if s.Written || s.Err != nil {
				return s.Written, s.Err
			}
		}
		moved, err := e.stopElsewhere(ctx, threadID, s)
		if s.Written || err != nil || !moved {
			return s.Written, err
		}
		select { // this replica or another one has just taken up the run
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(endPause):
		}
	}
	return false, fmt.Errorf("thread %s: %w", threadID, store.ErrLeaseHeld)
}

// stopElsewhere ends a run that waits, or that this replica does not execute. moved reports that a holder has just
// taken up the run.
func (e *Engine) stopElsewhere(ctx context.Context, threadID string, s *ending.Stop) (moved bool, err error) {
	last, err := e.store.Run(ctx, threadID, "")
	if err != nil || last.Status.Ended() || s.RunID != "" && s.RunID != last.ID {
		return false, store.IgnoreNotFound(err)
	}
	t, err := e.store.Thread(ctx, threadID)
	if err != nil {
		return false, err
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	active := held.NewActive(cancel)
	if !e.held.Register(threadID, active) {
		return true, nil
	}
	defer e.unregister(ctx, threadID, active)
	defer func() {
		if errors.Is(err, context.Canceled) && outer.Err() == nil && s.Err == nil {
			moved, err = true, nil // another caller ends the run at the same time and cancelled this attempt
		}
	}()
	fence, release, err := e.leases.Acquire(ctx, threadID, e.opts.Owner, cancel)
	if errors.Is(err, store.ErrLeaseHeld) {
		// The holder is another replica, which notices when it writes or renews, or a replica that is lost.
		if err := e.store.Apply(ctx, threadID, nil, &store.Revoke{}); err != nil {
			return false, err
		}
		if fence, release, err = e.leases.Acquire(ctx, threadID, e.opts.Owner, cancel); errors.Is(err, store.ErrLeaseHeld) {
			return true, nil
		}
	}
	if err != nil {
		return false, err
	}
	defer release()
	// Read again: nobody else can change the run now.
	if last, err = e.store.Run(ctx, threadID, ""); err != nil || last.Status.Ended() {
		return false, err
	}
	return false, e.stopHeld(ctx, t, fence, active, last, s)
}

// stopHeld ends a run that nobody executes. The caller holds the lease of the thread.
func (e *Engine) stopHeld(ctx context.Context, t *store.Thread, fence *store.Fence, active *held.Active, last *store.Run, s *ending.Stop) (err error) {
	r := e.newRun(t, fence, active, e.log.WithValues("thread", t.ID))
	r.record = *last
	if r.checkpoint, err = checkpoint.Read(last); err != nil {
		return err
	}
	// Hooks see this end like any other. A definition that is not ready must not prevent the stop.
	r.agent, _ = e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	return r.stop(context.WithoutCancel(ctx), s)
}

// Destroy clears the conversation (THR-06). The store does it in one transaction, which also ends a run that is under
// way and fences off its holder. A crash therefore finds either all of it done or nothing. The code that the run
// executes at this moment, and the children that the run waits for, are ended afterwards. A parent that waits for the
// thread is told.
func (e *Engine) Destroy(ctx context.Context, threadID string) error {
	t, err := e.store.Thread(ctx, threadID)
	if err != nil {
		return err
	}
	ops, err := e.partingOps(ctx, t)
	if err != nil {
		return err
	}
	awaited, err := e.awaitedOf(ctx, t)
	if err != nil {
		return err
	}
	ops = append(append(ops, &store.Destroy{Reason: store.DestroyedExplicit}), stopChildOps(awaited)...)
	e.fault("destroy.before")
	if err := e.store.Apply(ctx, threadID, nil, ops...); err != nil {
		return err
	}
	e.fault("destroy.after")
	e.held.Detach(threadID, ending.ErrDestroyed)
	e.held.Cancel(threadID, ending.ErrDestroyed)
	return e.stopAwaited(context.WithoutCancel(ctx), awaited)
}

// awaitedOf returns the children that the run of a thread waits for; none when no run is under way.
func (e *Engine) awaitedOf(ctx context.Context, t *store.Thread) ([]awaitedChild, error) {
	last, err := e.newestRun(ctx, t.ID)
	if err != nil || last == nil || last.Status.Ended() {
		return nil, err
	}
	r := e.newRun(t, nil, nil, e.log)
	r.record = *last
	if r.checkpoint, err = checkpoint.Read(last); err != nil {
		return nil, err
	}
	return r.awaited(ctx)
}

// partingOps returns the operations that tell the waiting parent of a thread that the thread will give no result.
func (e *Engine) partingOps(ctx context.Context, t *store.Thread) ([]store.Op, error) {
	if t.Child == nil || t.ParentID == "" || t.TerminatedAt != 0 {
		return nil, nil
	}
	last, err := e.store.Run(ctx, t.ID, "")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	replies, err := e.openReplies(ctx, t, last)
	if err != nil || len(replies) == 0 {
		return nil, err
	}
	status := tool.ChildFailed
	ops := []store.Op{&store.UpdateThread{RegistryStatus: &status}}
	for i, call := range replies {
		ops = append(ops, resultOp(t, fmt.Sprintf("child:%s:destroyed:%d:%d", t.ID, t.Version, i), store.ChildResult{
			Reference: t.Reference, ThreadID: t.ID, Name: t.Child.Name, ToolCallID: call, Status: status,
			Content: "the conversation of the subagent was destroyed before it gave a result",
		}))
	}
	return ops, nil
}

// Abort drops the run of a thread at once and writes nothing more, because the thread is about to be purged. It does
// not wait for the run.
func (e *Engine) Abort(_ context.Context, threadID, reason string) {
	e.held.Detach(threadID, ending.ErrAborted)
	if e.held.Cancel(threadID, ending.ErrAborted) {
		e.log.V(1).Info("run aborted", "thread", threadID, "reason", reason)
	}
}
