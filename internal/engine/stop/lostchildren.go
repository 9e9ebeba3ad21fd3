package stop

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// OpenReplies returns the calls of a parent that wait for a child: those that the child's run replies to, those of messages
// in its inbox and, before its first run, the call that created it. If no call waits for a child that works, it returns one
// empty id, so that a message tells the parent of the child's end. A child with explicit
// communication gets none: its parent is told only what the child sends with notifyParent.
func (s *Service) OpenReplies(ctx context.Context, child *store.Thread) ([]string, error) {
	last, err := s.opts.Store.Run(ctx, child.ID, "")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return s.openReplies(ctx, child, last)
}

// AnswerForLost answers the calls of a waiting run that wait for children which were deleted. The deletion of a child tells its
// parent too, but before its thread was stored it cannot, and a message that the parent sends at that moment may come too late for
// it.
func (s *Service) AnswerForLost(ctx context.Context, t *store.Thread, run *store.Run) error {
	if run.Status != store.RunWaiting {
		return nil
	}
	kept, err := runstate.Read(run)
	if err != nil {
		return err
	}
	answered, err := s.callsWithResult(ctx, t.ID)
	if err != nil {
		return err
	}
	for call, w := range kept.Waits {
		if w.Kind != tool.WaitChild || w.Reference == "" || answered[call] {
			continue
		}
		child, err := s.opts.Store.Child(ctx, t.ID, w.Reference)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil && child.RetainedAt == 0 {
			continue
		}
		exists, err := s.opts.Children.Exists(ctx, t, w.Reference)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		if err := s.opts.Store.ReleaseChild(ctx, t.ID, w.Reference); err != nil {
			return err
		}
		err = s.opts.Store.Apply(ctx, t.ID, nil, thread.ChildLostResult(t.ID, store.ChildResult{
			Reference: w.Reference, ThreadID: w.ThreadID, ToolCallID: call, Status: tool.ChildTerminated,
			Content: "the subagent was deleted before it returned a result",
		}))
		if err != nil {
			return store.IgnoreNotFound(err)
		}
	}
	return nil
}

// callsWithResult returns the calls of a thread whose results wait in its inbox.
func (s *Service) callsWithResult(ctx context.Context, threadID string) (map[string]bool, error) {
	items, err := s.opts.Store.Inbox(ctx, threadID)
	if err != nil {
		return nil, store.IgnoreNotFound(err)
	}
	calls := map[string]bool{}
	for _, item := range items {
		var r store.ChildResult
		if item.Kind == store.InboxChildResult && json.Unmarshal(item.Payload, &r) == nil {
			calls[r.ToolCallID] = true
		}
	}
	return calls, nil
}
