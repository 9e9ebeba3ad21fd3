package store

import "encoding/json"

// InboxKind tells what woke a thread.
type InboxKind string

// The kinds of inbox item.
const (
	// InboxMessage: Payload is a Message.
	InboxMessage InboxKind = "message"
	// InboxChildResult: Payload is a ChildResult.
	InboxChildResult InboxKind = "child_result"
	// InboxTool: Payload is a QueuedTool (TOL-01).
	InboxTool InboxKind = "tool"
	// InboxResume: wakes a parked run; no payload.
	InboxResume InboxKind = "resume"
	// InboxApproval: Payload is an ApprovalDecision.
	InboxApproval InboxKind = "approval"
	// InboxHook: Payload is a HookCall. It stays until the hook has been told.
	InboxHook InboxKind = "hook"
	// InboxStop: Payload is a StopOrder.
	InboxStop InboxKind = "stop"
)

// InboxItem is a durable wake-up, taken in order by whoever runs the thread.
type InboxItem struct {
	Seq       int64  // assigned by the store
	Key       string // unique within the thread for ever: a repeat is dropped; made up when empty
	Kind      InboxKind
	Payload   json.RawMessage
	CreatedAt int64
	HeldUntil int64 // when it is looked at again, in microseconds; 0 when it is not held
	Tries     int   // to do something about it that came to nothing
}

// ChildResult is what the end of a child's session tells its parent (SUB-04).
type ChildResult struct {
	Reference   string       `json:"reference"`
	ThreadID    string       `json:"threadId"`
	Name        string       `json:"name"`
	ToolCallID  string       `json:"toolCallId,omitempty"` // set when the parent's call waits for it
	Status      string       `json:"status"`               // completed, failed or terminated
	Content     string       `json:"content"`
	Attachments []Attachment `json:"attachments,omitempty"` // paths in the parent's files
}

// StopOrder tells a child that nobody waits for what it works on any more (RUN-04): the parent's run was ended.
type StopOrder struct {
	Calls []string `json:"calls"` // of the parent, whose results are not awaited
}

// QueuedTool is a tool call asked for from outside the model.
type QueuedTool struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	// HookDepth is how many hooks, one caused by the other, led to it.
	HookDepth int `json:"hookDepth,omitempty"`
	// Side that has the tool; "" is side a.
	Side string `json:"side,omitempty"`
}

// Approval is a decision on a tool call that had to be approved (RUN-11).
type Approval struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"` // the name of the user who decided; empty when nobody did in time
	At       int64  `json:"at"`
	Reason   string `json:"reason,omitempty"`
	// Arguments, an object, that the call is made with instead of the model's.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Expired   bool            `json:"expired,omitempty"` // nobody decided in time
}

// ApprovalDecision says which call was decided on, and how. It is also the data of EventApprovalDecided.
type ApprovalDecision struct {
	Approval
	ToolCallID string `json:"toolCallId"`
	Name       string `json:"name"` // of the tool
}

// HookCall is a hook of the thread's agent that is to be told of something that is stored (HOK-01).
type HookCall struct {
	Hook      string          `json:"hook"`
	MessageID string          `json:"messageId,omitempty"` // the message, or the result of Call
	Call      *ToolCall       `json:"call,omitempty"`
	Subagent  json.RawMessage `json:"subagent,omitempty"` // the registry's entry of a new child
	Side      string          `json:"side,omitempty"`     // whose hook it is; "" is side a's
	Outside   bool            `json:"outside,omitempty"`  // no side had the turn: side b's where a has none
	// Depth is how many hooks, one caused by the other, led to it.
	Depth int `json:"depth,omitempty"`
}
