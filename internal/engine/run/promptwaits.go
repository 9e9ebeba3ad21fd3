package run

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// A call that a called prompt makes may have to wait like any other: for a child, an approval or a time. The call of the
// prompt waits with it, and the run is parked. The state of the run has the waits of both. The result comes to the
// inner call, which makes the calls of all prompts around it ready. Each of these is made again, reads what it has left in
// the log, and continues from there. A call that finds nothing to do waits again.

// promptWaitResult returns the result of a call of a prompt that can do nothing at present.
func promptWaitResult() tool.Result { return tool.Result{Wait: &tool.Wait{Kind: tool.WaitPrompt}} }

// readInner reads the messages of called prompts whose calls have no result yet. It reads nothing if neither the items nor
// the waits that are due can concern them.
func (in *intake) readInner(ctx context.Context, items []store.InboxItem) (err error) {
	r := in.run
	outstanding := r.conv.OutstandingCalls(r.record.ID)
	if len(outstanding) == 0 || len(r.Agent.Prompts) == 0 && !r.State.InPrompt() || len(items) == 0 && !r.State.IsDue(r.service.now()) {
		return nil
	}
	after := r.conv.Caller(outstanding[0].ID).Seq
	in.inner, err = transcript.CalledPromptMessages(ctx, r.service.opts.Store, r.Thread.ID, after, func(m *store.Message) bool {
		return m.RunID == r.record.ID && role.PromptCallOf(m) != ""
	})
	return err
}

// recallEnds finds out, for a run that is continued, which of its calls in a conversation had a result that was removed since. A call
// that waits, or that was decided on, has had none: its result is recorded in the transaction that ends the wait or the decision.
func (r *run) recallEnds(ctx context.Context, c *transcript.Conversation) error {
	return c.RecallEnds(ctx, r.service.opts.Store, r.Thread.ID, r.record.ID, func(callID string) bool {
		_, waits := r.State.Waits[callID]
		_, decided := r.State.Decisions[callID]
		return waits || decided
	})
}

// caller returns the message of a called prompt that makes a call, or nil if no called prompt makes it.
func (in *intake) caller(callID string) *store.Message {
	if in.inner == nil {
		return nil
	}
	return in.inner.Caller(callID)
}

// findOpenCall returns a call of the run or of a called prompt, and reports whether it has no result yet. If a crash cut a run off
// before it was parked, the state of the run does not have its waits, so only this shows them.
func (in *intake) findOpenCall(callID string) (call store.ToolCall, yes bool) {
	for _, call := range in.outstandingCalls() {
		if call.ID == callID {
			return call, !in.answered[callID]
		}
	}
	return store.ToolCall{}, false
}

// outstandingCalls returns the calls of the run without a result, those of called prompts last.
func (in *intake) outstandingCalls() []store.ToolCall {
	calls := in.run.conv.OutstandingCalls(in.run.record.ID)
	if in.inner != nil {
		calls = append(calls, in.inner.OutstandingCalls(in.run.record.ID)...)
	}
	return calls
}

// result adds the result of a call to the conversation of the call, and makes the called prompts ready that wait for it.
func (in *intake) result(call store.ToolCall, m store.Message) {
	m.Role, m.ToolCallID, m.Name = store.RoleTool, call.ID, call.Name
	m.Side = in.run.conv.SideOf(call.ID)
	if caller := in.caller(call.ID); caller != nil {
		m.Side, m.Depth, m.ParentID = caller.Side, caller.Depth, caller.ParentID
		if m.Metadata == nil {
			m.Metadata = map[string]any{}
		}
		m.Metadata[role.MetadataPromptCall] = role.PromptCallOf(caller)
	}
	in.state.MarkDecision(call, &m)
	in.answered[call.ID] = true
	in.results = append(in.results, arrival{call: call, message: in.message(m)})
	in.endWait(call.ID)
}

// endWait ends the wait of a call, and makes the called prompts around it ready. It does so even if the message that makes the
// call was deleted: the prompts find that out.
func (in *intake) endWait(callID string) {
	w := in.state.Waits[callID]
	delete(in.state.Waits, callID)
	for caller := in.caller(callID); caller != nil; caller = in.caller(callID) {
		callID = role.PromptCallOf(caller)
		in.markReady(callID)
	}
	for id := w.Within; id != ""; {
		id = in.markReady(id).Within
	}
}

// markReady marks the call of a prompt that waits as ready to continue, and returns its wait.
func (in *intake) markReady(callID string) tool.Wait {
	w := in.state.Waits[callID]
	if w.Kind == tool.WaitPrompt {
		w.Ready = true
		in.state.Waits[callID] = w
	}
	in.freed = true
	return w
}
