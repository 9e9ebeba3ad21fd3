package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// A run that somebody ends takes the runs of the children with it that it waits for (RUN-04). That these are to end is
// put into their inboxes in the transaction that ends the run, so that it happens whoever dies then; whoever ended the run
// sees to it at once. A child whose thread was not there yet at that moment asks, when it begins, whether anybody waits.

// awaitedStop ends a child's run that nobody waits for any more. The parent is not told: it does not wait.
func awaitedStop(runID string) *stoppedError {
	return &stoppedError{reason: "the run that waited for it was ended", quiet: true, runID: runID}
}

// awaitedChild is a child that works on calls of its parent, or is to.
type awaitedChild struct {
	thread *store.Thread
	by     string // the run
	calls  []string
}

// awaited lists the children that a run waits for, or is about to: those that work on its calls. Those that work on
// their own are none of them.
func (r *run) awaited(ctx context.Context) ([]awaitedChild, error) {
	children, err := r.engine.store.Children(ctx, r.thread.ID)
	if err != nil {
		return nil, fmt.Errorf("list the children of thread %s: %w", r.thread.ID, err)
	}
	children = slices.DeleteFunc(children, func(c store.Thread) bool {
		return c.Child == nil || !c.Child.Blocking || c.TerminatedAt != 0
	})
	if len(children) == 0 {
		return nil, nil
	}
	conv := r.conv
	if conv == nil { // it is ended by somebody who was not at it
		if conv, err = transcript.Load(ctx, r.engine.store, r.thread, r.engine.opts.Limits.ContextMessages); err != nil {
			return nil, err
		}
	}
	open := map[string]bool{}
	for id := range r.checkpoint.Waits {
		open[id] = true
	}
	for _, call := range conv.Outstanding(r.record.ID) {
		open[call.ID] = true
	}
	var out []awaitedChild
	for i := range children {
		c := &children[i]
		last, err := r.engine.newestRun(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		replies, err := r.engine.openReplies(ctx, c, last)
		if err != nil {
			return nil, err
		}
		replies = slices.DeleteFunc(replies, func(call string) bool {
			// What a called prompt has made is not among the calls of the conversation.
			own := c.Child.SpawnGroupID == r.record.ID && call == c.Child.ToolCallID
			return call == "" || !open[call] && !own
		})
		if len(replies) > 0 {
			out = append(out, awaitedChild{thread: c, by: r.record.ID, calls: replies})
		}
	}
	return out, nil
}

// newestRun of a thread; nil when there is none.
func (e *Engine) newestRun(ctx context.Context, threadID string) (*store.Run, error) {
	last, err := e.store.Run(ctx, threadID, "")
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return last, err
}

// stopChildOps tell children, in the transaction that ends a run, that it does not wait for them any more.
func stopChildOps(children []awaitedChild) []store.Op {
	var ops []store.Op
	for _, c := range children {
		payload, _ := json.Marshal(store.StopOrder{Calls: c.calls}) // strings only: cannot fail
		ops = append(ops, &store.Enqueue{
			To: c.thread.ID, IgnoreTerminated: true,
			Item: store.InboxItem{Key: "stop:" + c.by, Kind: store.InboxStop, Payload: payload},
		})
	}
	return ops
}

// stopAwaited ends what children do that have been told so, here or elsewhere, and returns when that is over.
func (e *Engine) stopAwaited(ctx context.Context, children []awaitedChild) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(terminators)
	for _, c := range children {
		group.Go(func() error {
			last, err := e.newestRun(ctx, c.thread.ID)
			if err == nil && last == nil {
				err = e.dropUnbegun(ctx, c.thread)
			}
			if err == nil { // it may be about to begin
				_, err = e.endRun(ctx, c.thread.ID, awaitedStop(""))
			}
			return store.IgnoreNotFound(err)
		})
	}
	return group.Wait()
}

// dropUnbegun ends a child that has not begun, and takes the orders out of its inbox that say so.
func (e *Engine) dropUnbegun(ctx context.Context, t *store.Thread) error {
	work, err := e.store.Work(ctx, t.ID)
	if err != nil {
		return err
	}
	stops, calls, rest := splitStopRequests(work.Inbox)
	if len(stops) == 0 || !calls[t.Child.ToolCallID] {
		return nil // somebody has seen to it
	}
	err = e.store.Apply(ctx, t.ID, nil, append([]store.Op{dequeueOf(stops)}, endUnbegunOps(work.Thread, rest, calls)...)...)
	if errors.Is(err, store.ErrConflict) {
		return nil // the order stays, and whoever takes the child up looks
	}
	return err
}

// finishStopRequests take the orders out of the thread's inbox with the end of the run that they are about, as it may be parked
// then, and nobody would look; and give the calls that nobody waits for any more.
func (r *run) finishStopRequests(ctx context.Context) (ops []store.Op, over map[string]bool, err error) {
	items, err := r.engine.store.Inbox(ctx, r.thread.ID)
	if err != nil {
		return nil, nil, err
	}
	stops, over, _ := splitStopRequests(items)
	if len(stops) > 0 {
		ops = append(ops, dequeueOf(stops))
	} else {
		over = map[string]bool{}
	}
	for _, call := range r.checkpoint.ReplyTo {
		over[call] = true
	}
	return ops, over, nil
}

// parkOnly parks a child that has nothing to do but what nobody waits for any more. What anybody has said to it since, it
// works on, also when that comes at this very moment: whoever has said it may wait.
func parkOnly(calls map[string]bool) *store.Park {
	return &store.Park{Unless: func(item store.InboxItem) bool { return saidSince(item, calls) }}
}

// saidSince tells whether an inbox item is a message that is about none of the calls.
func saidSince(item store.InboxItem, calls map[string]bool) bool {
	return item.Kind == store.InboxMessage && !asks(item, calls)
}

// endUnbegunOps end a child that has not begun, whose inbox has that besides the orders: one that can be talked to again stays
// so, and begins when somebody says more to it; any other is over. One to which somebody has said more begins. They conflict
// with what is said to it in between, where it would be lost.
func endUnbegunOps(t *store.Thread, rest []store.InboxItem, calls map[string]bool) []store.Op {
	made := func(item store.InboxItem) bool { return item.Key == thread.FirstMessageKey }
	since := func(item store.InboxItem) bool { return !made(item) && saidSince(item, calls) }
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

// splitStopRequests takes the orders to stop out of what waits in an inbox, and gives the calls that they are about.
func splitStopRequests(items []store.InboxItem) (stops []store.InboxItem, calls map[string]bool, rest []store.InboxItem) {
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
		var order store.StopOrder
		_ = json.Unmarshal(item.Payload, &order) // one that cannot be read is about nothing
		for _, call := range order.Calls {
			calls[call] = true
		}
	}
	if stops == nil {
		return nil, nil, items
	}
	return stops, calls, rest
}

// applyStopRequests does what orders say, of a thread whose lease is held, and takes them out of its inbox: the run that they are about
// ends, and what has not begun does not. Nothing that began after an order came is touched by it.
func (e *Engine) applyStopRequests(ctx context.Context, t *store.Thread, fence *store.Fence, active *activeThread, last *store.Run, stops, rest []store.InboxItem, calls map[string]bool) error {
	if last != nil && !last.Status.Ended() {
		kept, err := checkpoint.Read(last)
		if err != nil {
			return err
		}
		if kept.RepliesToAny(calls) {
			return e.stopHeld(ctx, t, fence, active, last, awaitedStop(last.ID))
		}
		return e.drop(ctx, t.ID, fence, stops)
	}
	ops := []store.Op{dequeueOf(stops)}
	switch {
	case t.Child == nil:
	case last == nil && calls[t.Child.ToolCallID]:
		ops = append(ops, endUnbegunOps(t, rest, calls)...)
	case slices.ContainsFunc(rest, func(item store.InboxItem) bool { return asks(item, calls) }):
		ops = append(ops, parkOnly(calls))
	}
	err := e.store.Apply(ctx, t.ID, fence, ops...)
	if errors.Is(err, store.ErrConflict) && len(stops) > 0 {
		return nil // they are still there: it is looked at again
	}
	return store.IgnoreNotFound(err)
}

// asks tells whether an inbox item is a message whose answer was to be the result of one of the calls.
func asks(item store.InboxItem, calls map[string]bool) bool {
	var m store.Message
	if item.Kind != store.InboxMessage || json.Unmarshal(item.Payload, &m) != nil {
		return false
	}
	return slices.ContainsFunc(repliesOf(&m), func(call string) bool { return calls[call] })
}

// abandoned tells whether a child works, or is about to begin, for a run of its parent that somebody has ended: then that is
// the call. Whoever ended it may not have seen the child, which came to be at that moment. What was said to it since, by
// anybody, it begins with.
func (e *Engine) abandoned(ctx context.Context, t *store.Thread, last *store.Run, items []store.InboxItem) (calls map[string]bool, err error) {
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
		kept, err := checkpoint.Read(last)
		if err != nil || last.Status.Ended() || !kept.RepliesToAny(calls) {
			return nil, err
		}
	}
	by, err := e.store.Run(ctx, t.ParentID, c.SpawnGroupID)
	if err != nil || by.Status != store.RunStopped {
		return nil, store.IgnoreNotFound(err)
	}
	return calls, nil
}

// checkStopRequests ends the run of a thread here when an order says so.
func (e *Engine) checkStopRequests(ctx context.Context, id string) error {
	if !e.here(id) || e.Stopping(id) {
		return nil
	}
	items, err := e.store.Inbox(ctx, id)
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	stops, calls, _ := splitStopRequests(items)
	if len(stops) == 0 {
		return nil
	}
	last, err := e.newestRun(ctx, id)
	if err != nil || last == nil || last.Status.Ended() {
		return err
	}
	kept, err := checkpoint.Read(last)
	if err == nil && kept.RepliesToAny(calls) {
		e.cancel(id, awaitedStop(last.ID))
	}
	return err
}
