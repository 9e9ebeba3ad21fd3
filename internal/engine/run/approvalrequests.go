package run

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// A call that needs approval (RUN-11) waits like a call whose result comes from a child: the run is parked. The decision
// comes through the inbox. The run's state keeps it until the call is made and has its result. Calls are made in
// their order, so results keep that order.

// approvals requests approval of all calls that need it, in one transaction, and returns the calls that can be made now.
func (r *run) approvals(ctx context.Context, calls []store.ToolCall) ([]store.ToolCall, error) {
	var asked, started []store.Op
	var now []store.ToolCall
	blocked := false
	for _, call := range calls {
		need := r.code.Tools.NeedsApproval(call.Name, json.RawMessage(call.Arguments))
		d, decided := r.State.Decisions[call.ID]
		if need == nil || decided || r.CodeWaits() {
			if !blocked {
				if now = append(now, call); d.Approved && !r.State.HasEntered(call.ID) && (len(now) == 1 || r.Parallel()) {
					started = append(started, runlog.Event(r.record.ID, store.EventToolStarted, "", toolEvent{Name: call.Name, ToolCallID: call.ID}))
				}
			}
			continue
		}
		w, event := approval.Ask(call, need, r.code.Tools.Parameters(call.Name), r.conv.Caller(call.ID), r.record.ID, r.service.now())
		r.State.AddWait(call.ID, w, r.CallID(), r.service.now())
		asked = append(asked, event)
		blocked = blocked || !r.Parallel()
	}
	if len(asked)+len(started) == 0 {
		return now, nil
	}
	tx := r.newTransaction("approval")
	tx.add(asked...)
	if len(asked) > 0 {
		r.record.State = r.State.Encode()
		tx.putRun(r.record)
	}
	tx.add(started...)
	return now, tx.commit(ctx)
}

// decision takes in a decision on a call. It ignores a call that no longer waits for approval, since that one was decided
// before.
func (in *intake) decision(d store.ApprovalDecision) {
	if w, ok := in.state.Waits[d.ToolCallID]; !ok || w.Kind != tool.WaitApproval {
		return
	}
	in.decide(d.ToolCallID, d.Approval)
}

// decide keeps a decision on a call for when the call is made, and ends the call's wait.
func (in *intake) decide(callID string, a store.Approval) {
	if in.state.Decisions == nil {
		in.state.Decisions = map[string]store.Approval{}
	}
	in.state.Decisions[callID] = a
	in.freed = true
	in.endWait(callID)
}
