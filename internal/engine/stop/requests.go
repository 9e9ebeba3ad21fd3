package stop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// When an external request ends a run, the runs of the children that it waits for end too (RUN-04). The transaction
// that ends the run puts a stop request into the inbox of each such child, so that the children stop even if this
// replica crashes. The replica that ended the run also stops them at once. A child whose thread did not exist at that
// moment checks, when it begins, whether its parent's run still waits.

// AwaitedStop returns the stop of a child's run for which no call waits any more. The parent is not told, because it
// does not wait.
func AwaitedStop(runID string) *cancelcause.Stop {
	return &cancelcause.Stop{Reason: "the run that waited for it was ended", ParentEnded: true, RunID: runID}
}

// AwaitedChild is a child that works, or will work, on calls of its parent.
type AwaitedChild struct {
	thread *store.Thread
	by     string // the id of the parent's run
	calls  []string
}

// AwaitedChildren returns the children that a run waits for or will wait for: those that work on its calls. It leaves out children that
// work independently. It does not look at children that have ended or rest, however many there are. waits are what the calls of the run
// wait for. conv is the conversation of the run; nil when the caller ends the run without executing it.
func (s *Service) AwaitedChildren(ctx context.Context, t *store.Thread, runID string, waits map[string]tool.Wait, conv *transcript.Conversation) ([]AwaitedChild, error) {
	children, err := s.opts.Store.WorkingChildren(ctx, t.ID)
	if err != nil {
		return nil, fmt.Errorf("list the children of thread %s: %w", t.ID, err)
	}
	children = slices.DeleteFunc(children, func(c store.Thread) bool { return c.Child == nil || !c.Child.Blocking })
	if len(children) == 0 {
		return nil, nil
	}
	if conv == nil {
		if conv, err = transcript.Load(ctx, s.opts.Store, t, s.opts.ContextMessages); err != nil {
			return nil, err
		}
	}
	open := map[string]bool{}
	for id := range waits {
		open[id] = true
	}
	for _, call := range conv.OutstandingCalls(runID) {
		open[call.ID] = true
	}
	var out []AwaitedChild
	for i := range children {
		c := &children[i]
		last, err := s.newestRun(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		replies, err := s.openReplies(ctx, c, last)
		if err != nil {
			return nil, err
		}
		replies = slices.DeleteFunc(replies, func(call string) bool {
			// Calls that a called prompt made are not among the calls of the conversation.
			own := c.Child.SpawnGroupID == runID && call == c.Child.ToolCallID
			return call == "" || !open[call] && !own
		})
		if len(replies) > 0 {
			out = append(out, AwaitedChild{thread: c, by: runID, calls: replies})
		}
	}
	return out, nil
}

// newestRun returns the newest run of a thread; nil when there is none.
func (s *Service) newestRun(ctx context.Context, threadID string) (*store.Run, error) {
	last, err := s.opts.Store.Run(ctx, threadID, "")
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return last, err
}

// ChildOps returns the stop requests for children, for the transaction that ends the run which waited for them.
func ChildOps(children []AwaitedChild) []store.Op {
	var ops []store.Op
	for _, c := range children {
		payload, _ := json.Marshal(store.StopRequest{Calls: c.calls}) // strings only: cannot fail
		ops = append(ops, &store.Enqueue{
			To: c.thread.ID, IgnoreTerminated: true,
			Item: store.InboxItem{Key: "stop:" + c.by, Kind: store.InboxStop, Payload: payload},
		})
	}
	return ops
}

// StopAwaited ends the runs of children that have a stop request, on any replica, and returns when they have ended.
func (s *Service) StopAwaited(ctx context.Context, children []AwaitedChild) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(terminators)
	for _, c := range children {
		group.Go(func() error {
			last, err := s.newestRun(ctx, c.thread.ID)
			if err == nil && last == nil {
				err = s.dropUnbegun(ctx, c.thread)
			}
			if err == nil { // a run may be about to begin
				_, err = s.endRun(ctx, c.thread.ID, AwaitedStop(""))
			}
			return store.IgnoreGone(err)
		})
	}
	return group.Wait()
}

// dropUnbegun ends a child that has not begun, and removes the stop requests for it from its inbox.
func (s *Service) dropUnbegun(ctx context.Context, t *store.Thread) error {
	work, err := s.opts.Store.Work(ctx, t.ID)
	if err != nil {
		return err
	}
	stops, calls, rest := Split(work.Inbox)
	if len(stops) == 0 || !calls[t.Child.ToolCallID] {
		return nil // another replica has handled it
	}
	err = s.opts.Store.Apply(ctx, t.ID, nil, append([]store.Op{runlog.DequeueOf(stops)}, endUnbegunOps(work.Thread, rest, calls)...)...)
	if errors.Is(err, store.ErrConflict) {
		return nil // the stop request stays, and the next holder of the child handles it
	}
	return err
}

// TakeRequests returns what goes with the end of a run that a stop request is about. ops remove the stop requests from the inbox,
// because nothing would look at them if the thread is parked afterwards. unawaited has the parent's calls whose results no run waits for any more. It
// includes replyTo, the parent's calls that this end answers.
func (s *Service) TakeRequests(ctx context.Context, threadID string, replyTo []string) (ops []store.Op, unawaited map[string]bool, err error) {
	items, err := s.opts.Store.Inbox(ctx, threadID)
	if err != nil {
		return nil, nil, err
	}
	stops, unawaited, _ := Split(items)
	if len(stops) > 0 {
		ops = append(ops, runlog.DequeueOf(stops))
	} else {
		unawaited = map[string]bool{}
	}
	for _, call := range replyTo {
		unawaited[call] = true
	}
	return ops, unawaited, nil
}

// ParkOnly returns the operation that parks a child, unless its inbox has a message that is about none of the calls.
// The child works on such a message, even if it arrives at this very moment, since its sender may wait for the
// answer.
func ParkOnly(calls map[string]bool) *store.Park {
	return &store.Park{Unless: func(item store.InboxItem) bool { return isOtherMessage(item, calls) }}
}

// isOtherMessage reports whether an inbox item is a message that is about none of the calls.
func isOtherMessage(item store.InboxItem, calls map[string]bool) bool {
	return item.Kind == store.InboxMessage && !isMessageFor(item, calls)
}

// endUnbegunOps returns the operations that cancel a child that never started. rest is its inbox without the stop
// requests.
//
//   - A resumable child is parked, unless it already got another message. It begins when it gets one.
//   - Any other child that already got another message begins, so there are no operations.
//   - Any remaining child is terminated. The operations fail with a conflict when the thread changes in between, so that
//     no message is lost.
func endUnbegunOps(t *store.Thread, rest []store.InboxItem, calls map[string]bool) []store.Op {
	made := func(item store.InboxItem) bool { return item.Key == thread.FirstMessageKey }
	since := func(item store.InboxItem) bool { return !made(item) && isOtherMessage(item, calls) }
	if t.Child.Resumable {
		return []store.Op{&store.Park{Unless: since}}
	}
	if slices.ContainsFunc(rest, since) {
		return nil
	}
	status := tool.ChildTerminated
	return []store.Op{
		&store.ExpectVersion{Version: t.Version}, &store.UpdateThread{RegistryStatus: &status}, thread.ChildStatusMessage(t, status, ""),
		&store.Terminate{Reason: skeinv1.ReasonSessionEnded},
	}
}

// Split splits inbox items into stop requests and the rest, and returns the calls that the stop requests
// name.
func Split(items []store.InboxItem) (stops []store.InboxItem, calls map[string]bool, rest []store.InboxItem) {
	for i, item := range items {
		if item.Kind != store.InboxStop {
			if stops != nil {
				rest = append(rest, item)
			}
			continue
		}
		if stops == nil {
			rest, calls = append([]store.InboxItem(nil), items[:i]...), map[string]bool{}
		}
		stops = append(stops, item)
		var request store.StopRequest
		_ = json.Unmarshal(item.Payload, &request) // a stop request that cannot be read names no calls
		for _, call := range request.Calls {
			calls[call] = true
		}
	}
	if stops == nil {
		return nil, nil, items
	}
	return stops, calls, rest
}

// Apply applies pending stop requests to a thread and removes them from its inbox. The caller holds the
// lease. The run that they are about ends, and work that has not begun does not begin. Runs that began after a stop
// request arrived are not affected.
func (s *Service) Apply(ctx context.Context, t *store.Thread, fence *store.Fence, active *activethreads.Active, last *store.Run, stops, rest []store.InboxItem, calls map[string]bool) error {
	if last != nil && !last.Status.Ended() {
		kept, err := runstate.Read(last)
		if err != nil {
			return err
		}
		// A run that waits would take such a message later, and nothing would then end its work for it.
		asked := func(item store.InboxItem) bool { return isMessageFor(item, calls) }
		if kept.RepliesToAny(calls) || last.Status == store.RunWaiting && slices.ContainsFunc(rest, asked) {
			return s.opts.Runs.End(ctx, t, fence, active, last, AwaitedStop(last.ID))
		}
		return s.opts.Store.Apply(ctx, t.ID, fence, runlog.DequeueOf(stops))
	}
	ops := []store.Op{runlog.DequeueOf(stops)}
	switch {
	case t.Child == nil:
	case last == nil && calls[t.Child.ToolCallID]:
		ops = append(ops, endUnbegunOps(t, rest, calls)...)
	case slices.ContainsFunc(rest, func(item store.InboxItem) bool { return isMessageFor(item, calls) }):
		ops = append(ops, ParkOnly(calls))
	}
	err := s.opts.Store.Apply(ctx, t.ID, fence, ops...)
	if errors.Is(err, store.ErrConflict) && len(stops) > 0 {
		return nil // the stop requests are still there and are looked at again
	}
	return store.IgnoreNotFound(err)
}

// isMessageFor reports whether an inbox item is a message whose answer would be the result of one of the calls.
func isMessageFor(item store.InboxItem, calls map[string]bool) bool {
	var m store.Message
	if item.Kind != store.InboxMessage || json.Unmarshal(item.Payload, &m) != nil {
		return false
	}
	return slices.ContainsFunc(runlog.RepliesOf(&m), func(call string) bool { return calls[call] })
}

// AbandonedCalls returns the call that a child works for, or will begin to work for, when the parent's run was stopped;
// nil otherwise. The caller that stopped the run may not have seen the child, which was created at that moment. A
// child that has got a second message begins with it all the same.
func (s *Service) AbandonedCalls(ctx context.Context, t *store.Thread, last *store.Run, items []store.InboxItem) (calls map[string]bool, err error) {
	c := t.Child
	if c == nil || !c.Blocking || c.ToolCallID == "" || c.SpawnGroupID == "" || t.ParentID == "" {
		return nil, nil
	}
	calls = map[string]bool{c.ToolCallID: true}
	if last == nil {
		said := 0
		for _, item := range items {
			if item.Kind == store.InboxMessage {
				said++
			}
		}
		if said > 1 {
			return nil, nil
		}
	} else {
		kept, err := runstate.Read(last)
		if err != nil || last.Status.Ended() || !kept.RepliesToAny(calls) {
			return nil, err
		}
	}
	by, err := s.opts.Store.Run(ctx, t.ParentID, c.SpawnGroupID)
	if err != nil || by.Status != store.RunStopped {
		return nil, store.IgnoreNotFound(err)
	}
	if by.Reason == store.ReasonThreadDeleted {
		// No user stopped the run: the parent is retained. Children that go with it are deleted themselves, and orphaned ones
		// continue their work, as they do when nothing of the parent is kept.
		return nil, nil
	}
	return calls, nil
}

// CancelIfRequested ends the run of a thread on this replica when a stop request names its calls.
func (s *Service) CancelIfRequested(ctx context.Context, id string) error {
	if !s.opts.Active.IsActive(id) || s.opts.Active.IsEnding(id) {
		return nil
	}
	items, err := s.opts.Store.Inbox(ctx, id)
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	stops, calls, _ := Split(items)
	if len(stops) == 0 {
		return nil
	}
	last, err := s.newestRun(ctx, id)
	if err != nil || last == nil || last.Status.Ended() {
		return err
	}
	kept, err := runstate.Read(last)
	if err == nil && kept.RepliesToAny(calls) {
		s.opts.Active.Cancel(id, AwaitedStop(last.ID))
	}
	return err
}
