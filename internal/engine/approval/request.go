package approval

import (
	"encoding/json"

	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// maxKeptSchema is the longest schema that the state of a run keeps with a waiting call, in bytes.
const maxKeptSchema = 64 << 10

// Ask returns the wait of a call that needs approval, and the operation that announces it. parameters is the schema of the call's
// arguments, and caller the message that makes the call, if it is there.
func Ask(call store.ToolCall, need *tool.Approval, parameters json.RawMessage, caller *store.Message, runID string, now int64) (tool.Wait, store.Op) {
	w := tool.Wait{Kind: tool.WaitApproval, Since: now, Name: call.Name}
	if len(parameters) <= maxKeptSchema {
		w.Parameters = parameters
	}
	if need.Timeout > 0 {
		w.Until = w.Since + need.Timeout.Microseconds()
	}
	if caller != nil {
		w.MessageID = caller.ID
	}
	return w, runlog.Event(runID, store.EventApprovalRequested, w.MessageID, request{Name: call.Name, ToolCallID: call.ID, ExpiresAt: w.Until})
}

// request is the data of the event approval.requested.
type request struct {
	Name       string `json:"name"`
	ToolCallID string `json:"toolCallId"`
	ExpiresAt  int64  `json:"expiresAt,omitempty"` // microseconds
}

// Refusal returns the result of a call that was not approved.
func Refusal(a *store.Approval) tool.Result {
	if a.Expired {
		return tool.Failure("the call was not made: no approval came in time. Do not repeat it unchanged; go on without it, or ask")
	}
	text := "the call was not made: " + a.By + " refused it"
	if a.Reason != "" {
		text += ", saying: " + a.Reason
	}
	return tool.Failure(text)
}
