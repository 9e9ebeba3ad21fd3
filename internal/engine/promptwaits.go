package engine

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// A call that a called prompt makes may have to wait like any other: for a child, an approval, a time. The call of the
// prompt waits with it, so that the run is parked; the waits of both are the run's. What the wait was for comes to the
// inner call, which lets the calls of prompts that it is made within go on: each is made again, reads what it has left in
// the log, and goes on from there. One that finds nothing to do waits again.

// parked is the result of the call of a prompt in which nothing can be done at present.
func parked() tool.Result { return tool.Result{Wait: &tool.Wait{Kind: tool.WaitPrompt}} }

// entered tells whether a call is that of a prompt which has been at work and waited.
func (r *run) entered(callID string) bool {
	return r.checkpoint.Waits[callID].Kind == tool.WaitPrompt
}

// waits notes that a call waits. That is in the log once the run is parked; until then the call is simply repeated.
func (r *run) waits(call store.ToolCall, w tool.Wait) {
	if w.Kind == tool.WaitDelay {
		w.Until = r.engine.now() + w.For.Microseconds()
	}
	if r.frame != nil {
		w.Within = r.frame.call.ID
	}
	if r.checkpoint.Waits == nil {
		r.checkpoint.Waits = map[string]tool.Wait{}
	}
	r.checkpoint.Waits[call.ID] = w
}

// framesMessages gives, in order, the messages of called prompts behind a place of the log that are wanted.
func (r *run) framesMessages(ctx context.Context, after int64, wanted func(*store.Message) bool) (*transcript.Conversation, error) {
	c := transcript.New()
	for {
		page, err := r.engine.store.Messages(ctx, r.thread.ID, store.MessageQuery{Order: "asc", AfterSeq: after, Limit: transcript.PageSize, IncludeSilent: true, AllDepths: true})
		if err != nil {
			return nil, fmt.Errorf("read the messages of a called prompt: %w", err)
		}
		for i := range page.Messages {
			m := &page.Messages[i]
			if after = m.Seq; wanted(m) {
				c.Add(*m)
			}
		}
		if len(page.Messages) < transcript.PageSize {
			return c, nil
		}
	}
}

// readInner reads what called prompts have left of the calls that have no result yet, where any of the items, or of the
// waits, may be about it.
func (in *intake) readInner(ctx context.Context, items []store.InboxItem) (err error) {
	r := in.run
	outstanding := r.conv.Outstanding(r.record.ID)
	if len(outstanding) == 0 || len(r.agent.Prompts) == 0 && !r.checkpoint.InPrompt() || len(items) == 0 && !r.timeIsUp() {
		return nil
	}
	after := r.conv.Caller(outstanding[0].ID).Seq
	in.inner, err = r.framesMessages(ctx, after, func(m *store.Message) bool {
		return m.RunID == r.record.ID && within(m) != ""
	})
	return err
}

// within is the call of the prompt that a message is of; "" for none.
func within(m *store.Message) string {
	id, _ := m.Metadata[metadataPromptCall].(string)
	return id
}

// caller gives the message of a called prompt that makes a call; nil when it is none of those.
func (in *intake) caller(callID string) *store.Message {
	if in.inner == nil {
		return nil
	}
	return in.inner.Caller(callID)
}

// awaits tells whether a call of the run has no result yet, be it one of a called prompt, and gives it: a run that a
// crash cut off before it was parked knows of its waits only by that.
func (in *intake) awaits(callID string) (call store.ToolCall, yes bool) {
	for _, call := range in.outstanding() {
		if call.ID == callID {
			return call, !in.answered[callID]
		}
	}
	return store.ToolCall{}, false
}

// outstanding lists the calls of the run without a result, those of called prompts last.
func (in *intake) outstanding() []store.ToolCall {
	calls := in.run.conv.Outstanding(in.run.record.ID)
	if in.inner != nil {
		calls = append(calls, in.inner.Outstanding(in.run.record.ID)...)
	}
	return calls
}

// result puts what has come for a call where results of its conversation are, and lets those go on that wait for it.
func (in *intake) result(call store.ToolCall, m store.Message) {
	m.Role, m.ToolCallID, m.Name = store.RoleTool, call.ID, call.Name
	m.Side = in.run.conv.SideOf(call.ID)
	if caller := in.caller(call.ID); caller != nil {
		m.Side, m.Depth, m.ParentID = caller.Side, caller.Depth, caller.ParentID
		if m.Metadata == nil {
			m.Metadata = map[string]any{}
		}
		m.Metadata[metadataPromptCall] = within(caller)
	}
	in.checkpoint.MarkDecision(call, &m)
	in.answered[call.ID] = true
	in.results = append(in.results, arrival{call: call, message: in.message(m)})
	in.over(call.ID)
}

// over ends the wait of a call, and lets the called prompts go on that it is made within, also where the message that
// makes it was deleted: they find out.
func (in *intake) over(callID string) {
	w := in.checkpoint.Waits[callID]
	delete(in.checkpoint.Waits, callID)
	for caller := in.caller(callID); caller != nil; caller = in.caller(callID) {
		callID = within(caller)
		in.ready(callID)
	}
	for id := w.Within; id != ""; {
		id = in.ready(id).Within
	}
}

// ready lets a called prompt go on that waits.
func (in *intake) ready(callID string) tool.Wait {
	w := in.checkpoint.Waits[callID]
	if w.Kind == tool.WaitPrompt {
		w.Ready = true
		in.checkpoint.Waits[callID] = w
	}
	in.freed = true
	return w
}
