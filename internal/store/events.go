package store

import "encoding/json"

// Event is one entry of the thread's log.
type Event struct {
	Seq       int64           `json:"seq"`
	Type      string          `json:"type"`
	RunID     string          `json:"runId,omitempty"`
	MessageID string          `json:"messageId,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	CreatedAt int64           `json:"createdAt"`
}

// Bytes returns about how many bytes of memory the event takes.
func (e *Event) Bytes() int64 {
	return 128 + int64(len(e.Type)+len(e.RunID)+len(e.MessageID)+len(e.Data))
}

// Event types that Skein itself writes. The type of a custom event (EVT-01) is "event:" and its name.
const (
	EventRunStarted     = "run.started"
	EventRunWaiting     = "run.waiting"
	EventRunEnded       = "run.ended"
	EventRunRolledBack  = "run.rolledback" // Data: the number of messages taken back, and the calls and children of the run
	EventMessageQueued  = "message.queued"
	EventMessageCreated = "message.created"
	EventMessageUpdated = "message.updated"
	EventMessageDeleted = "message.deleted"
	EventDelta          = "message.delta" // Data {"text": "…"}: a piece of an unfinished answer
	EventToolStarted    = "tool.started"
	EventToolEnded      = "tool.ended"
	EventTurnEnded      = "turn.ended" // Data {"side": "a", "turn": 1, "next": "b"}: the session continues
	// EventContextCompacted: a model has summed up older messages (MSG-12); the event's message is the summary. Data
	// {"from", "to", "messages", "side", "prompt", "model", "requests"}.
	EventContextCompacted = "context.compacted"
	// EventCompactionFailed: older messages were to be summed up and could not be. Data {"reason", "message", "side",
	// "prompt", "requests"}.
	EventCompactionFailed = "context.compaction_failed"
	// EventContextTrimmed: a model call left out the oldest messages or shortened results. Data {"leftOut",
	// "shortened"?, "kept", "tokens", "contextWindow"?, "model"?}.
	EventContextTrimmed = "context.trimmed"
	EventToolProgress   = "tool.progress" // Data {"name", "toolCallId", "progress", "total", "message"}
	// EventApprovalRequested has {"name", "toolCallId", "expiresAt"?} as Data, EventApprovalDecided an ApprovalDecision.
	EventApprovalRequested = "approval.requested"
	EventApprovalDecided   = "approval.decided"
	EventHookFailed        = "hook.failed" // Data HookFailure
	EventCodeLog           = "code.log"    // Data CodeLine: a line that code wrote to the console
	EventHandlerLog        = "handler.log" // Data {"level": "info", "message": "…", "data": {…}}: a line of ctx.logger
	EventTaskFailed        = "task.failed" // Data TaskFailure
	EventTerminated        = "thread.terminated"
	EventThreadUpdated     = "thread.updated"   // Data: the changed fields with their new values
	EventDestroyed         = "thread.destroyed" // Data {"reason": "explicit|expired", "messages": 12}
	EventRetained          = "thread.retained"
	EventAdopted           = "thread.adopted"
	EventHandoff           = "thread.handoff" // Data HandoffData
	EventContinued         = "thread.continued"
	EventFileWritten       = "file.written"
	EventFileDeleted       = "file.deleted"
)

// HookFailure is the data of EventHookFailed: why a hook of the agent failed (HOK-01).
type HookFailure struct {
	Hook       string `json:"hook"`
	Owner      string `json:"owner"` // kind and name of the object that has the hook
	Error      string `json:"error"`
	MessageID  string `json:"messageId,omitempty"`
	ToolCallID string `json:"toolCallId,omitempty"`
}

// TaskFailure is the data of EventTaskFailed: why a post-run task failed (RUN-07).
type TaskFailure struct {
	Task  string `json:"task"`
	Error string `json:"error"`
}
