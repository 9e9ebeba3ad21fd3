package stop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Stop ends the run of a thread at a user's request: a run under way on this or another replica, or a waiting one.
// The run ends as stopped (RUN-04). Messages that wait in the inbox stay there until a user sends another message or
// calls Continue (MSG-08). Both facts are on disk when Stop returns, so a message sent afterwards starts a run.
// Without a run Stop does nothing.
func (s *Service) Stop(ctx context.Context, threadID, reason string) error {
	_, err := s.endRun(ctx, threadID, &cancelcause.Stop{Reason: reason})
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
func (s *Service) endRun(ctx context.Context, threadID string, how *cancelcause.Stop) (ended bool, err error) {
	for range endTries {
		if done := s.opts.Active.StartCancel(threadID, how); done != nil {
			select {
			case <-done:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
			if how.Written || how.Err != nil {
				return how.Written, how.Err
			}
		}
		moved, err := s.EndElsewhere(ctx, threadID, how)
		if how.Written || err != nil || !moved {
			return how.Written, err
		}
		select { // this replica or another one has just taken up the run
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(endPause):
		}
	}
	return false, fmt.Errorf("thread %s: %w", threadID, store.ErrLeaseHeld)
}

// EndElsewhere ends a run that waits, or that this replica does not execute. moved reports that a holder has just
// taken up the run.
func (s *Service) EndElsewhere(ctx context.Context, threadID string, how *cancelcause.Stop) (moved bool, err error) {
	last, err := s.opts.Store.Run(ctx, threadID, "")
	if err != nil || last.Status.Ended() || how.RunID != "" && how.RunID != last.ID {
		return false, store.IgnoreNotFound(err)
	}
	t, err := s.opts.Store.Thread(ctx, threadID)
	if err != nil {
		return false, err
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	active := activethreads.NewActive(cancel)
	if !s.opts.Active.Register(threadID, active) {
		return true, nil
	}
	defer func() {
		if err == nil && !moved {
			s.opts.Runs.Wake(threadID) // the run may have waited for a model or a retry, and what is in the inbox waited with it
		}
	}()
	defer s.opts.Runs.LetGo(ctx, threadID, active)
	defer func() {
		if errors.Is(err, context.Canceled) && outer.Err() == nil && how.Err == nil {
			moved, err = true, nil // another caller ends the run at the same time and cancelled this attempt
		}
	}()
	fence, release, err := s.opts.Leases.Acquire(ctx, threadID, s.opts.Owner, cancel)
	if errors.Is(err, store.ErrLeaseHeld) {
		// The holder is another replica, which notices when it writes or renews, or a replica that is lost.
		if err := s.opts.Store.Apply(ctx, threadID, nil, &store.Revoke{}); err != nil {
			return false, err
		}
		if fence, release, err = s.opts.Leases.Acquire(ctx, threadID, s.opts.Owner, cancel); errors.Is(err, store.ErrLeaseHeld) {
			return true, nil
		}
	}
	if err != nil {
		return false, err
	}
	defer release()
	// Read again: with the lease, only this replica can change the run.
	if last, err = s.opts.Store.Run(ctx, threadID, ""); err != nil || last.Status.Ended() {
		return false, err
	}
	return false, s.opts.Runs.End(ctx, t, fence, active, last, how)
}

// Destroy clears the conversation (THR-06). The store does it in one transaction, which also ends a run that is under
// way and fences off its holder. A crash therefore finds either all of it done or nothing. The code that the run
// executes at this moment, and the children that the run waits for, are ended afterwards. A parent that waits for the
// thread is told.
func (s *Service) Destroy(ctx context.Context, threadID string) error {
	t, err := s.opts.Store.Thread(ctx, threadID)
	if err != nil {
		return err
	}
	ops, err := s.noResultOps(ctx, t)
	if err != nil {
		return err
	}
	awaited, err := s.awaitedOf(ctx, t)
	if err != nil {
		return err
	}
	ops = append(append(ops, &store.Destroy{Reason: store.DestroyedExplicit}), ChildOps(awaited)...)
	s.fault("destroy.before")
	if err := s.opts.Store.Apply(ctx, threadID, nil, ops...); err != nil {
		return err
	}
	s.fault("destroy.after")
	s.opts.Active.Detach(threadID, cancelcause.ErrDestroyed)
	if !s.opts.Active.Cancel(threadID, cancelcause.ErrDestroyed) {
		s.opts.Runs.Wake(threadID)
	}
	return s.StopAwaited(context.WithoutCancel(ctx), awaited)
}

// awaitedOf returns the children that the run of a thread waits for; none when no run is under way.
func (s *Service) awaitedOf(ctx context.Context, t *store.Thread) ([]AwaitedChild, error) {
	last, err := s.newestRun(ctx, t.ID)
	if err != nil || last == nil || last.Status.Ended() {
		return nil, err
	}
	kept, err := runstate.Read(last)
	if err != nil {
		return nil, err
	}
	return s.AwaitedChildren(ctx, t, last.ID, kept.Waits, nil)
}

// noResultOps returns the operations that tell the waiting parent of a thread that the thread will give no result.
func (s *Service) noResultOps(ctx context.Context, t *store.Thread) ([]store.Op, error) {
	if t.Child == nil || t.ParentID == "" || t.TerminatedAt != 0 || t.Deleting { // the parent knows already
		return nil, nil
	}
	last, err := s.opts.Store.Run(ctx, t.ID, "")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	replies, err := s.openReplies(ctx, t, last)
	if err != nil || len(replies) == 0 {
		return nil, err
	}
	status := tool.ChildFailed
	ops := []store.Op{&store.UpdateThread{RegistryStatus: &status}}
	for i, call := range replies {
		ops = append(ops, runlog.ResultOp(t, fmt.Sprintf("child:%s:destroyed:%d:%d", t.ID, t.Version, i), store.ChildResult{
			Reference: t.Reference, ThreadID: t.ID, Name: t.Child.Name, ToolCallID: call, Status: status,
			Content: "the conversation of the subagent was destroyed before it gave a result",
		}))
	}
	return ops, nil
}

// Abort drops the run of a thread at once and writes nothing more, because the thread is about to be purged. It does
// not wait for the run.
func (s *Service) Abort(threadID, reason string) {
	s.opts.Active.Detach(threadID, cancelcause.ErrAborted)
	if s.opts.Active.Cancel(threadID, cancelcause.ErrAborted) {
		s.opts.Log.V(1).Info("run aborted", "thread", threadID, "reason", reason)
	}
}
