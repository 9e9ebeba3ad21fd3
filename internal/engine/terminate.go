package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/ending"
	"github.com/skein-dev/skein/internal/engine/failure"
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
// that were missed. reason is one of api/v1alpha1/conditions.go.
func (e *Engine) Terminate(ctx context.Context, threadID, reason string) error {
	t, err := e.store.Thread(ctx, threadID)
	if err != nil {
		return err
	}
	if t.TerminatedAt == 0 {
		if err := e.terminateOne(ctx, t, reason); err != nil {
			return err
		}
	}
	// The caller may be code of the run that ends now. What follows must not end with that run.
	ctx = context.WithoutCancel(ctx)
	e.held.Detach(threadID, ending.ErrTerminal)
	if !e.held.Cancel(threadID, ending.ErrTerminal) {
		if err := e.endTerminatedRun(ctx, threadID); err != nil {
			return err
		}
	}
	return e.terminateChildren(ctx, threadID)
}

// terminateChildren terminates all children of a thread, and so all of its descendants.
func (e *Engine) terminateChildren(ctx context.Context, threadID string) error {
	children, err := e.store.Children(ctx, threadID)
	if err != nil {
		return fmt.Errorf("list the children of thread %s: %w", threadID, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(terminators)
	for _, c := range children {
		group.Go(func() error { return store.IgnoreNotFound(e.Terminate(ctx, c.ID, skeinv1.ReasonParentTerminated)) })
	}
	return group.Wait()
}

// terminateOne records that a thread is terminated. The same transaction ends a parked run, and tells the parent.
func (e *Engine) terminateOne(ctx context.Context, t *store.Thread, reason string) error {
	var ops []store.Op
	var ended []store.RunRef
	var span telemetry.Run
	last, err := e.store.Run(ctx, t.ID, "")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	replies, err := e.openReplies(ctx, t, last)
	if err != nil {
		return err
	}
	if last != nil && last.Status == store.RunWaiting {
		span = runtrace.Of(last)
		last.Status, last.Reason, last.EndedAt, last.State = store.RunTerminated, failure.ReasonTerminated, e.now(), e.postRun.Mark(nil, nil)
		ops = append(ops, &store.PutRun{Run: *last})
		ended = append(ended, store.RunRef{ThreadID: t.ID, RunID: last.ID})
	}
	if t.Child != nil {
		status := tool.ChildTerminated
		ops = append(ops, &store.UpdateThread{RegistryStatus: &status})
		if reason != skeinv1.ReasonParentTerminated && t.ParentID != "" {
			ops = append(ops, thread.ChildStatusMessage(t, tool.ChildTerminated, ""))
			for i, call := range replies {
				ops = append(ops, resultOp(t, fmt.Sprintf("child:%s:terminated:%d", t.ID, i), store.ChildResult{
					Reference: t.Reference, ThreadID: t.ID, Name: t.Child.Name, ToolCallID: call, Status: tool.ChildTerminated,
				}))
			}
		}
	}
	if !e.held.Here(t.ID) {
		ops = append(ops, &store.Revoke{}) // another replica may execute the run: it can write nothing more
	}
	if err := e.store.Apply(ctx, t.ID, nil, append(ops, &store.Terminate{Reason: reason})...); err != nil {
		return err
	}
	if len(ended) > 0 {
		runtrace.Ended(t, last, span)
	}
	e.postRun.Add(ended...)
	return nil
}

// openReplies returns the parent's calls that wait for a thread: those that its run replies to, those of messages in its
// inbox and, before its first run, the call that created it. If no call waits for a child that works, it returns one empty
// id, so that a message tells the parent of the child's end.
func (e *Engine) openReplies(ctx context.Context, t *store.Thread, last *store.Run) ([]string, error) {
	if t.Child == nil {
		return nil, nil
	}
	var replies []string
	working := last == nil || !last.Status.Ended()
	if last != nil && !last.Status.Ended() {
		kept, err := checkpoint.Read(last)
		if err != nil {
			return nil, err
		}
		replies = kept.ReplyTo
	}
	if last == nil && t.Child.Blocking && t.Child.ToolCallID != "" {
		replies = append(replies, t.Child.ToolCallID)
	}
	items, err := e.store.Inbox(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		var m store.Message
		if item.Kind != store.InboxMessage || json.Unmarshal(item.Payload, &m) != nil {
			continue
		}
		replies = append(replies, repliesOf(&m)...)
	}
	if len(replies) == 0 && working && t.Child.ParentCommunication != string(skeinv1.CommunicationExplicit) {
		replies = []string{""}
	}
	return replies, nil
}
