package stop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Ended is the end of a run.
type Ended struct {
	Thread      *store.Thread
	Run         *store.Run
	ReplyTo     []string // the parent's calls that wait for the end
	Text        string
	Attachments []string
	ParentEnded bool            // the parent's run that waited for this run has ended
	Unawaited   map[string]bool // with ParentEnded: the parent's calls that no longer wait for a result
}

// EndsWithResult reports whether a thread is a child that its result ends (SUB-02). Such a child ends once no message waits for it.
func EndsWithResult(t *store.Thread) bool { return t.Child != nil && !t.Child.Resumable }

// ResultOps returns the operations with which a child's session ends: its status in the registry, what the parent is told, and the
// termination of a child that ends with its result (SUB-04). There are none for a thread without a parent.
func (s *Service) ResultOps(ctx context.Context, r Ended) ([]store.Op, error) {
	c, text := r.Thread.Child, r.Text
	if c == nil || r.Thread.ParentID == "" {
		return nil, nil
	}
	status := tool.ChildCompleted
	if r.Run.Status != store.RunSucceeded {
		status = tool.ChildFailed
	}
	ops := []store.Op{&store.UpdateThread{RegistryStatus: &status}, thread.ChildStatusMessage(r.Thread, status, r.Run.ID)}
	if r.Run.Reason == skeinv1.ReasonMaxSessionTurnsReached {
		text += "\n[" + r.Run.Message + "]" // the parent must know that the answer may be cut off
	}
	replies := r.ReplyTo
	if len(replies) == 0 && c.ParentCommunication != string(skeinv1.CommunicationExplicit) {
		replies = []string{""} // no call waits, so the result becomes a message
	}
	if r.ParentEnded {
		replies = nil
	}
	// A message that waits when the run succeeds gets its answer from the next run, and then the child ends.
	succeeded := r.Run.Status == store.RunSucceeded
	if EndsWithResult(r.Thread) && !succeeded {
		unanswered, err := s.unansweredResults(ctx, r.Thread, r.Run.ID, r.Unawaited)
		if err != nil {
			return nil, err
		}
		ops = append(ops, unanswered...)
	}
	if len(replies) > 0 {
		copied, note, err := s.handUp(ctx, r.Thread, r.Attachments)
		if err != nil {
			return nil, err
		}
		for i, call := range replies {
			ops = append(ops, runlog.ResultOp(r.Thread, fmt.Sprintf("child:%s:%s:%d", r.Thread.ID, r.Run.ID, i), store.ChildResult{
				Reference: r.Thread.Reference, ThreadID: r.Thread.ID, Name: c.Name, ToolCallID: call,
				Status: status, Content: text + note, Attachments: copied,
			}))
		}
	}
	if EndsWithResult(r.Thread) {
		end := &store.Terminate{Reason: skeinv1.ReasonSessionEnded}
		if succeeded {
			end.Unless = wantsAnswer
		}
		ops = append(ops, end)
	}
	return ops, nil
}

// EndsChild reports whether the child ended with these operations of ResultOps, which were written.
func EndsChild(ops []store.Op) bool {
	return slices.ContainsFunc(ops, func(op store.Op) bool {
		end, ok := op.(*store.Terminate)
		return ok && !end.Left
	})
}

// wantsAnswer reports whether an inbox item is a message that is to be answered. What a child below says is silent.
func wantsAnswer(item store.InboxItem) bool {
	var m store.Message
	return item.Kind == store.InboxMessage && json.Unmarshal(item.Payload, &m) == nil && !m.Silent
}

// handUp copies files of a child to its parent (FIL-07). When the parent cannot take them, the note says why, and the
// result is sent without them. An error means that a later attempt may succeed: the child's run goes on until it does.
func (s *Service) handUp(ctx context.Context, child *store.Thread, paths []string) (copied []store.Attachment, note string, err error) {
	if len(paths) == 0 {
		return nil, "", nil
	}
	from, err := s.opts.Threads.Open(ctx, child.ID)
	if err != nil {
		return nil, "", err
	}
	parent, err := s.opts.Threads.Open(ctx, child.ParentID)
	if err == nil {
		copied, err = parent.CopyFilesFrom(ctx, from, paths)
	}
	switch {
	case err == nil:
		return copied, "", nil
	case thread.IsInvalid(err), errors.Is(err, store.ErrQuota), errors.Is(err, store.ErrFolder), errors.Is(err, store.ErrNotFolder):
		return nil, "\n[attachments could not be handed over: " + err.Error() + "]", nil
	}
	return nil, "", store.IgnoreGone(err) // a parent that is gone or retained does not get the result either
}

// unansweredResults returns the results of the parent's calls whose messages the run leaves in the inbox of a child that ends now.
// The results say that the messages get no answer. The calls in unawaited wait for none.
func (s *Service) unansweredResults(ctx context.Context, t *store.Thread, runID string, unawaited map[string]bool) (ops []store.Op, err error) {
	items, err := s.opts.Store.Inbox(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		var m store.Message
		if item.Kind != store.InboxMessage || json.Unmarshal(item.Payload, &m) != nil {
			continue
		}
		for i, call := range runlog.RepliesOf(&m) {
			if unawaited[call] {
				continue
			}
			ops = append(ops, runlog.ResultOp(t, fmt.Sprintf("child:%s:%s:left:%d:%d", t.ID, runID, item.Seq, i), store.ChildResult{
				Reference: t.Reference, ThreadID: t.ID, Name: t.Child.Name, ToolCallID: call, Status: tool.ChildTerminated,
				Content: "the subagent ended before it took this message, so the message has no answer",
			}))
		}
	}
	return ops, nil
}
