package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Roles of a message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Statuses of a message.
const (
	MessagePending   = "pending"
	MessageCompleted = "completed"
	MessageFailed    = "failed"
)

// Message is one message of a conversation.
type Message struct {
	// ID, unique within the thread.
	ID string `json:"id"`
	// Role: system, user, assistant or tool.
	Role string `json:"role"`
	// Content is the text, null when the message has none (an assistant's that only calls tools).
	Content *string `json:"content"`
	// Name of the speaker or, on a tool's result, of the tool.
	Name string `json:"name,omitempty"`
	// ToolCalls that an assistant message asks for.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID is the call that a tool message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// CreatedAt in microseconds.
	CreatedAt int64 `json:"created_at"`
	// ParentID is the message that this one belongs below.
	ParentID string `json:"parent_id,omitempty"`
	// Depth below the conversation, 0 for its own messages.
	Depth int `json:"depth"`
	// Silent messages are for the model, not for people.
	Silent bool `json:"silent,omitempty"`
	// Metadata of whoever wrote it. A message that still waits has queued: true.
	Metadata map[string]any `json:"metadata,omitempty"`
	// Attachments are files of the thread.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Status: pending, completed or failed.
	Status string `json:"status,omitempty"`
	// ToolStatus of a tool's result: success or error.
	ToolStatus string `json:"tool_status,omitempty"`
	// ReasoningContent that the model gave with its answer.
	ReasoningContent string `json:"reasoning_content,omitempty"`
	// Side of a dual_ai agent that wrote it, a or b; absent where nobody but a person and one side talk.
	Side string `json:"side,omitempty"`
	// RunID is the run that wrote it.
	RunID string `json:"run_id,omitempty"`
	// Usage of the model call that made it, as the provider reports it.
	Usage json.RawMessage `json:"usage,omitempty"`
}

// ToolCall is a call that a model asked for.
type ToolCall struct {
	// ID that the result refers to.
	ID string `json:"id"`
	// Name of the tool.
	Name string `json:"name"`
	// Arguments as JSON text, as the model wrote it.
	Arguments string `json:"arguments"`
}

// Attachment is a file of the thread that belongs to a message.
type Attachment struct {
	// Path in the thread's files. When writing a message only this is needed.
	Path string `json:"path"`
	// Name for people.
	Name string `json:"name,omitempty"`
	// MimeType of the file.
	MimeType string `json:"mimeType,omitempty"`
	// Size in bytes.
	Size int64 `json:"size,omitempty"`
}

// MessageList is a page of messages.
type MessageList struct {
	metav1.TypeMeta `json:",inline"`
	// Messages of the page.
	Messages []Message `json:"messages"`
	// Total that the query selects, over all pages.
	Total int64 `json:"total"`
	// HasMore tells that there are messages beyond this page.
	HasMore bool `json:"hasMore"`
}

// KindMessageList is the kind of a MessageList.
const KindMessageList = "MessageList"

// NewMessage is the body of POST messages (injectMessage: stored, never starts execution)
// and of POST queue (queueMessage: waits durably and starts execution).
type NewMessage struct {
	// ID of the message; made up when empty.
	ID string `json:"id,omitempty"`
	// Role; "user" when empty. A queued message is user or system. "info" is a silent system message.
	Role string `json:"role,omitempty"`
	// Content, at most 256 KiB.
	Content string `json:"content"`
	// Name of the speaker or of the tool.
	Name string `json:"name,omitempty"`
	// Silent messages are for the model, not for people.
	Silent bool `json:"silent,omitempty"`
	// Metadata, any object.
	Metadata map[string]any `json:"metadata,omitempty"`
	// Attachments are files that the thread has already (PUT files/{path} first).
	Attachments []Attachment `json:"attachments,omitempty"`
	// ToolCalls of an injected assistant message.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID of an injected tool message.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// ToolStatus of an injected tool message: success or error.
	ToolStatus string `json:"tool_status,omitempty"`
	// ParentID of an injected message: the message that it belongs below.
	ParentID string `json:"parent_id,omitempty"`
	// Depth of an injected message below the conversation, at most 100.
	Depth int `json:"depth,omitempty"`
	// Status of an injected message: pending, completed (when empty) or failed.
	Status string `json:"status,omitempty"`
	// ReasoningContent of an injected assistant message.
	ReasoningContent string `json:"reasoning_content,omitempty"`
	// Policy of a queued message that meets a run under way: enqueue, reject, interrupt or rollback; that of the thread,
	// or of its agent, when empty. Interrupt and rollback need the right to create threads/stop.
	Policy string `json:"policy,omitempty"`
	// IdempotencyKey makes a repeat of this write change nothing; the header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}
