package store

import "encoding/json"

// InboxKind says what woke a thread.
type InboxKind string

// The kinds of inbox item.
const (
	// InboxMessage has a Message as Payload.
	InboxMessage InboxKind = "message"
	// InboxChildResult has a ChildResult as Payload.
	InboxChildResult InboxKind = "child_result"
	// InboxTool has a QueuedTool as Payload (TOL-01).
	InboxTool InboxKind = "tool"
	// InboxResume wakes a parked run. It has no payload.
	InboxResume InboxKind = "resume"
	// InboxApproval has an ApprovalDecision as Payload.
	InboxApproval InboxKind = "approval"
	// InboxHook has a HookCall as Payload. It stays in the inbox until the hook has been called.
	InboxHook InboxKind = "hook"
	// InboxRerun has a Rerun as Payload. It starts a run that takes up what the thread has.
	InboxRerun InboxKind = "rerun"
	// InboxStop has a StopRequest as Payload.
	InboxStop InboxKind = "stop"
	// InboxCompact has a CompactionRequest as Payload. It stays in the inbox until older messages are summed up (MSG-12).
	InboxCompact InboxKind = "compact"
)

// InboxItem is a durable wake-up. The holder of the thread's lease takes items in order.
type InboxItem struct {
	Seq          int64  // assigned by the store
	Key          string // unique within the thread for ever, so that a repeat is dropped; generated when empty
	Kind         InboxKind
	Payload      json.RawMessage
	CreatedAt    int64
	DelayedUntil int64 // when it becomes due again, in microseconds; 0 when it is not delayed
	Tries        int   // failed attempts to handle it
}

// ChildResult is what a parent receives when a child's session ends (SUB-04).
type ChildResult struct {
	Reference   string       `json:"reference"`
	ThreadID    string       `json:"threadId"`
	Name        string       `json:"name"`
	ToolCallID  string       `json:"toolCallId,omitempty"` // set when a call of the parent waits for it
	Status      string       `json:"status"`               // completed, failed or terminated
	Content     string       `json:"content"`
	Attachments []Attachment `json:"attachments,omitempty"` // paths in the parent's files
}

// StopRequest tells a child that the parent's run has ended, so no call waits for the child's result any more (RUN-04).
type StopRequest struct {
	Calls []string `json:"calls"` // calls of the parent that no longer await their results
}

// CompactionRequest asks for a summary of older messages.
type CompactionRequest struct {
	Side string `json:"side,omitempty"` // for whom; "" means side a
}

// Rerun starts a run of a fork at a step of a past run (RUN-12). What the step reads is in the conversation already.
type Rerun struct {
	Input string `json:"input,omitempty"` // id of the message that a handler is to answer
	Side  string `json:"side,omitempty"`  // whose step it is; "" means side a
}

// QueuedTool is a tool call that something other than the model asked for.
type QueuedTool struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	// HookDepth is the length of the chain of hooks, each caused by the one before it, that led to the call.
	HookDepth int `json:"hookDepth,omitempty"`
	// Side is the side that has the tool. "" means side a.
	Side string `json:"side,omitempty"`
}

// Approval is a decision on a tool call that needed approval (RUN-11).
type Approval struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"` // name of the user who decided; empty when no decision came in time
	At       int64  `json:"at"`
	Reason   string `json:"reason,omitempty"`
	// Arguments is an object that replaces the model's arguments in the call.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Expired   bool            `json:"expired,omitempty"` // no decision came in time
}

// ApprovalDecision says which call was decided on, and how. It is also the data of EventApprovalDecided.
type ApprovalDecision struct {
	Approval
	ToolCallID string `json:"toolCallId"`
	Name       string `json:"name"` // of the tool
}

// HookCall asks for a hook of the thread's agent to be called about something that is stored (HOK-01).
type HookCall struct {
	Hook      string          `json:"hook"`
	MessageID string          `json:"messageId,omitempty"` // the message, or the result of Call
	Call      *ToolCall       `json:"call,omitempty"`
	Subagent  json.RawMessage `json:"subagent,omitempty"` // the registry entry of a new child
	Side      string          `json:"side,omitempty"`     // the side whose hook it is; "" means side a
	NoSide    bool            `json:"outside,omitempty"`  // no side had the turn, because the call belongs to no run; the hook is side b's when side a has none
	// Depth is the length of the chain of hooks, each caused by the one before it, that led to this call.
	Depth int `json:"depth,omitempty"`
}
