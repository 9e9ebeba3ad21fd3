package run

import (
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// times ends the waits whose time has come, in the order of their calls.
func (in *intake) times() {
	now := in.run.service.now()
	due := func(w tool.Wait) bool { return w.Until != 0 && w.Until <= now }
	for _, call := range in.outstandingCalls() {
		w := in.state.Waits[call.ID]
		if !due(w) {
			continue
		}
		switch w.Kind {
		case tool.WaitApproval:
			a := store.Approval{At: now, Expired: true}
			in.decide(call.ID, a)
			in.ops = append(in.ops, runlog.Event(in.run.record.ID, store.EventApprovalDecided, w.MessageID, store.ApprovalDecision{Approval: a, ToolCallID: call.ID, Name: call.Name}))
		case tool.WaitDelay:
			in.delayOver(call)
		}
	}
	for id, w := range in.state.Waits {
		if due(w) { // its call was deleted
			in.endWait(id)
		}
	}
}

// delayOver adds the result of a call that waited for a time.
func (in *intake) delayOver(call store.ToolCall) {
	in.freed = true
	text := "the time is over"
	in.result(call, store.Message{ID: runlog.NewMessageID(), CreatedAt: in.run.service.now(), ToolStatus: string(tool.StatusSuccess), Content: &text})
}
