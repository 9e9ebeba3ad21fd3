package stop

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// OpenReplies returns the calls of a parent that wait for a child: those that the child's run replies to, those of messages
// in its inbox and, before its first run, the call that created it. If no call waits for a child that works, it returns one
// empty id, so that a message tells the parent of the child's end.
func (s *Service) OpenReplies(ctx context.Context, child *store.Thread) ([]string, error) {
	last, err := s.opts.Store.Run(ctx, child.ID, "")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return s.openReplies(ctx, child, last)
}

// AnswerForLost answers the calls of a waiting run that wait for children which do not exist, because somebody deleted them
// before their threads were stored. A child with a stored thread tells its parent itself.
func (s *Service) AnswerForLost(ctx context.Context, t *store.Thread, run *store.Run) error {
	if run.Status != store.RunWaiting {
		return nil
	}
	kept, err := checkpoint.Read(run)
	if err != nil {
		return err
	}
	for call, w := range kept.Waits {
		if w.Kind != tool.WaitChild || w.Reference == "" {
			continue
		}
		if _, err := s.opts.Store.Child(ctx, t.ID, w.Reference); !errors.Is(err, store.ErrNotFound) {
			if err != nil {
				return err
			}
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
			Content: "the subagent was deleted before it began",
		}))
		if err != nil {
			return store.IgnoreNotFound(err)
		}
	}
	return nil
}
