package engine

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// A call that has to be approved (RUN-11) waits like one whose result a child gives: the run is parked. The
// decision comes by the inbox and is kept with the run until the call has its result, which is when it is that
// call's turn, so that results keep the order of the calls.

// approvals asks for the approval of the calls that need it, all at once, and gives those that can be made now.
func (r *run) approvals(ctx context.Context, calls []store.ToolCall) ([]store.ToolCall, error) {
	var asked, started []store.Op
	var now []store.ToolCall
	blocked := false
	for _, call := range calls {
		need := r.tools.NeedsApproval(call.Name, json.RawMessage(call.Arguments))
		d, decided := r.checkpoint.Decisions[call.ID]
		if need == nil || decided || r.codeWaits() {
			if !blocked {
				if now = append(now, call); d.Approved && !r.entered(call.ID) && (len(now) == 1 || r.parallel()) {
					started = append(started, eventOp(r.record.ID, store.EventToolStarted, "", toolEvent{Name: call.Name, ToolCallID: call.ID}))
				}
			}
			continue
		}
		asked = append(asked, r.askApproval(call, need))
		blocked = blocked || !r.parallel()
	}
	if len(asked)+len(started) == 0 {
		return now, nil
	}
	s := r.newStep("approval")
	s.add(asked...)
	if len(asked) > 0 {
		r.record.State = r.checkpoint.Encode()
		s.checkpoint(r.record)
	}
	s.add(started...)
	return now, s.commit(ctx)
}

// asksFirst tells whether a call of the newest answer waits for its approval before it starts.
func (r *run) asksFirst(call store.ToolCall) bool {
	return r.tools != nil && !r.codeWaits() && r.tools.NeedsApproval(call.Name, json.RawMessage(call.Arguments)) != nil
}

// maxKeptSchema is the longest schema that is kept with a call that waits, in bytes.
const maxKeptSchema = 64 << 10

// askApproval notes that a call waits for its approval.
func (r *run) askApproval(call store.ToolCall, need *tool.Approval) store.Op {
	w := tool.Wait{Kind: tool.WaitApproval, Since: r.engine.now(), Name: call.Name}
	if p := r.tools.Parameters(call.Name); len(p) <= maxKeptSchema {
		w.Parameters = p
	}
	if need.Timeout > 0 {
		w.Until = w.Since + need.Timeout.Microseconds()
	}
	if m := r.conv.Caller(call.ID); m != nil {
		w.MessageID = m.ID
	}
	r.waits(call, w)
	return eventOp(r.record.ID, store.EventApprovalRequested, w.MessageID, approvalRequest{Name: call.Name, ToolCallID: call.ID, ExpiresAt: w.Until})
}

// approvalRequest is the data of approval.requested.
type approvalRequest struct {
	Name       string `json:"name"`
	ToolCallID string `json:"toolCallId"`
	ExpiresAt  int64  `json:"expiresAt,omitempty"` // microseconds
}

// decision takes in what was decided on a call. One that does not wait for it any more has been decided on.
func (in *intake) decision(d store.ApprovalDecision) {
	if w, ok := in.checkpoint.Waits[d.ToolCallID]; !ok || w.Kind != tool.WaitApproval {
		return
	}
	in.decide(d.ToolCallID, d.Approval)
}

func (in *intake) decide(callID string, a store.Approval) {
	if in.checkpoint.Decisions == nil {
		in.checkpoint.Decisions = map[string]store.Approval{}
	}
	in.checkpoint.Decisions[callID] = a
	in.freed = true
	in.over(callID)
}

// refusal is the result of a call that was not approved.
func refusal(a *store.Approval) tool.Result {
	if a.Expired {
		return tool.Failure("the call was not made: nobody approved it in time. Do not repeat it as it is; go on without it, or ask")
	}
	text := "the call was not made: " + a.By + " refused it"
	if a.Reason != "" {
		text += ", saying: " + a.Reason
	}
	return tool.Failure(text)
}
