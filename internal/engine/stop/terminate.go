package stop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// terminators is how many threads of one generation are terminated at once, so that their writes share commits.
const terminators = 32

// Terminate terminates a thread and keeps its data (THR-05), and does the same with every descendant (SUB-08). It writes to
// the store first, then ends the runs that are under way on this replica. A repeat is not an error, and reaches descendants
// that were missed, below others that were not. reason is one of api/v1alpha1/conditions.go.
func (s *Service) Terminate(ctx context.Context, threadID, reason string) error {
	t, err := s.opts.Store.Thread(ctx, threadID)
	if err != nil {
		return err
	}
	below := s.opts.Store.UnfinishedBelow
	if t.TerminatedAt == 0 {
		if err := s.terminateOne(ctx, t, reason); err != nil {
			return err
		}
		below = s.opts.Store.UnfinishedChildren
	}
	// The caller may be code of the run that ends now. What follows must not end with that run.
	ctx = context.WithoutCancel(ctx)
	s.opts.Active.Detach(threadID, cancelcause.ErrTerminal)
	if !s.opts.Active.Cancel(threadID, cancelcause.ErrTerminal) {
		if err := s.EndTerminatedRun(ctx, threadID); err != nil {
			return err
		}
	}
	return s.terminateAll(ctx, threadID, below)
}

// TerminateChildren terminates the children of a thread that has just been terminated, and so all of its descendants. Those that have
// ended are not looked at, however many there are.
func (s *Service) TerminateChildren(ctx context.Context, threadID string) error {
	return s.terminateAll(ctx, threadID, s.opts.Store.UnfinishedChildren)
}

func (s *Service) terminateAll(ctx context.Context, threadID string, below func(ctx context.Context, id string) ([]string, error)) error {
	ids, err := below(ctx, threadID)
	if err != nil {
		return fmt.Errorf("list the children of thread %s: %w", threadID, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(terminators)
	for _, id := range ids {
		group.Go(func() error { return store.IgnoreGone(s.Terminate(ctx, id, skeinv1.ReasonParentTerminated)) })
	}
	return group.Wait()
}

// terminateOne records that a thread is terminated. The same transaction ends a parked run, and tells the parent.
func (s *Service) terminateOne(ctx context.Context, t *store.Thread, reason string) error {
	var ops []store.Op
	var ended []store.RunRef
	var span telemetry.Run
	last, err := s.opts.Store.Run(ctx, t.ID, "")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	replies, err := s.openReplies(ctx, t, last)
	if err != nil {
		return err
	}
	if last != nil && last.Status == store.RunWaiting {
		span = runtrace.SpanOf(last)
		last.Status, last.Reason, last.EndedAt, last.State = store.RunTerminated, skeinv1.ReasonTerminated, s.opts.Now(), s.opts.PostRun.EndState(nil, nil)
		ops = append(ops, &store.PutRun{Run: *last})
		ended = append(ended, store.RunRef{ThreadID: t.ID, RunID: last.ID})
	}
	if t.Child != nil {
		status := tool.ChildTerminated
		ops = append(ops, &store.UpdateThread{RegistryStatus: &status})
		if reason != skeinv1.ReasonParentTerminated && t.ParentID != "" && !t.Deleting { // its deletion has told the parent
			ops = append(ops, thread.ChildStatusMessage(t, tool.ChildTerminated, ""))
			for i, call := range replies {
				ops = append(ops, runlog.ResultOp(t, fmt.Sprintf("child:%s:terminated:%d", t.ID, i), store.ChildResult{
					Reference: t.Reference, ThreadID: t.ID, Name: t.Child.Name, ToolCallID: call, Status: tool.ChildTerminated,
				}))
			}
		}
	}
	if !s.opts.Active.IsActive(t.ID) {
		ops = append(ops, &store.Revoke{}) // another replica may execute the run: it can write nothing more
	}
	if err := s.opts.Store.Apply(ctx, t.ID, nil, append(ops, &store.Terminate{Reason: reason})...); err != nil {
		return err
	}
	if len(ended) > 0 {
		runtrace.RecordEnd(t, last, span)
	}
	s.opts.PostRun.Add(ended...)
	return nil
}

// openReplies is OpenReplies for a child whose newest run was read already. last is nil when there is none.
func (s *Service) openReplies(ctx context.Context, t *store.Thread, last *store.Run) ([]string, error) {
	if t.Child == nil {
		return nil, nil
	}
	var replies []string
	working := last == nil || !last.Status.Ended()
	if last != nil && !last.Status.Ended() {
		kept, err := runstate.Read(last)
		if err != nil {
			return nil, err
		}
		replies = kept.ReplyTo
	}
	if last == nil && t.Child.Blocking && t.Child.ToolCallID != "" {
		replies = append(replies, t.Child.ToolCallID)
	}
	items, err := s.opts.Store.Inbox(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		var m store.Message
		if item.Kind != store.InboxMessage || json.Unmarshal(item.Payload, &m) != nil {
			continue
		}
		replies = append(replies, runlog.RepliesOf(&m)...)
	}
	if len(replies) == 0 && working && t.Child.ParentCommunication != string(skeinv1.CommunicationExplicit) {
		replies = []string{""}
	}
	return replies, nil
}

// EndTerminatedRun ends the run that a terminated thread has left and that no worker executes.
func (s *Service) EndTerminatedRun(ctx context.Context, id string) error {
	last, err := s.opts.Store.Run(ctx, id, "")
	if err != nil || last.Status.Ended() {
		return store.IgnoreNotFound(err)
	}
	t, err := s.opts.Store.Thread(ctx, id)
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	return store.IgnoreNotFound(s.EndTerminated(ctx, t, nil, last))
}

// EndTerminated records that a run ended because its thread was terminated. A run that began just then has set the status of a
// child back to running.
func (s *Service) EndTerminated(ctx context.Context, t *store.Thread, fence *store.Fence, r *store.Run) error {
	span := runtrace.SpanOf(r)
	r.Status, r.Reason, r.EndedAt, r.State = store.RunTerminated, skeinv1.ReasonTerminated, s.opts.Now(), s.opts.PostRun.EndState(nil, nil)
	ops := []store.Op{&store.PutRun{Run: *r}}
	if t.Child != nil {
		terminated := tool.ChildTerminated
		ops = append(ops, &store.UpdateThread{RegistryStatus: &terminated})
	}
	if err := s.opts.Store.Apply(ctx, t.ID, fence, ops...); err != nil {
		return err
	}
	runtrace.RecordEnd(t, r, span)
	if postrun.HasTasksDue(r) {
		s.opts.PostRun.Add(store.RunRef{ThreadID: t.ID, RunID: r.ID})
	}
	return nil
}
