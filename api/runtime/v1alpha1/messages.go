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

// Message mirrors Message in internal/store/messages.go, where a new field begins. This is not for the reference, which has the comment below.

// Message is one message of a conversation.
type Message struct {
	// ID is unique within the thread.
	ID string `json:"id"`
	// Role is system, user, assistant or tool.
	Role string `json:"role"`
	// Content is the text. It is null when the message has none, such as an assistant message that only calls tools.
	Content *string `json:"content"`
	// Name is the name of the speaker or, for a tool's result, of the tool.
	Name string `json:"name,omitempty"`
	// ToolCalls lists the calls that an assistant message requests.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID is the call that a tool message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// CreatedAt is in microseconds.
	CreatedAt int64 `json:"created_at"`
	// ParentID is the message that this one belongs below.
	ParentID string `json:"parent_id,omitempty"`
	// Depth is the level below the conversation, 0 for its own messages.
	Depth int `json:"depth"`
	// Silent is true for a message for the model, not for people.
	Silent bool `json:"silent,omitempty"`
	// Metadata is set by the writer. A message that still waits has queued: true.
	Metadata map[string]any `json:"metadata,omitempty"`
	// Attachments lists files of the thread.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Status is pending, completed or failed.
	Status string `json:"status,omitempty"`
	// ToolStatus is the status of a tool's result: success or error.
	ToolStatus string `json:"tool_status,omitempty"`
	// ReasoningContent is the reasoning that the model returned with its answer.
	ReasoningContent string `json:"reasoning_content,omitempty"`
	// Side is the side of a dual_ai agent that wrote it, a or b. It is absent when only a person and one side talk.
	Side string `json:"side,omitempty"`
	// RunID is the run that wrote it.
	RunID string `json:"run_id,omitempty"`
	// Usage is the usage of the model call that made it, as the provider reports it.
	Usage json.RawMessage `json:"usage,omitempty"`
	// Summary says which messages it stands for. It is absent for other messages.
	Summary *MessageSummary `json:"summary,omitempty"`
}

// ToolCall is a call that a model requests.
type ToolCall struct {
	// ID is the id that the result refers to.
	ID string `json:"id"`
	// Name is the name of the tool.
	Name string `json:"name"`
	// Arguments is JSON text, as the model wrote it.
	Arguments string `json:"arguments"`
}

// Attachment is a file of the thread that belongs to a message.
type Attachment struct {
	// Path is the path in the thread's files. Only this field is needed when a message is written.
	Path string `json:"path"`
	// Name is for people.
	Name string `json:"name,omitempty"`
	// MimeType is the media type of the file.
	MimeType string `json:"mimeType,omitempty"`
	// Size is in bytes.
	Size int64 `json:"size,omitempty"`
}

// MessageList is a page of messages.
type MessageList struct {
	metav1.TypeMeta `json:",inline"`
	// Messages is the page.
	Messages []Message `json:"messages"`
	// Total is the number of messages that the query selects, over all pages.
	Total int64 `json:"total"`
	// HasMore reports whether more messages follow.
	HasMore bool `json:"hasMore"`
}

// KindMessageList is the kind of a MessageList.
const KindMessageList = "MessageList"

// NewMessage is the body of POST messages (injectMessage: stores a message and never starts execution) and of POST
// queue (queueMessage: queues a message durably and starts execution).
type NewMessage struct {
	// ID is the id of the message. An empty one is generated.
	ID string `json:"id,omitempty"`
	// Role is "user" when empty. A queued message is user or system. "info" is a silent system message.
	Role string `json:"role,omitempty"`
	// Content is at most 256 KiB.
	Content string `json:"content"`
	// Name is the name of the speaker or of the tool.
	Name string `json:"name,omitempty"`
	// Silent is true for a message for the model, not for people.
	Silent bool `json:"silent,omitempty"`
	// Metadata is any object.
	Metadata map[string]any `json:"metadata,omitempty"`
	// Attachments lists existing files of the thread (PUT files/{path} first).
	Attachments []Attachment `json:"attachments,omitempty"`
	// ToolCalls lists the calls of an injected assistant message.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID is the call that an injected tool message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// ToolStatus is the status of an injected tool message: success or error.
	ToolStatus string `json:"tool_status,omitempty"`
	// ParentID is the message that an injected message belongs below.
	ParentID string `json:"parent_id,omitempty"`
	// Depth is the level of an injected message below the conversation, at most 100.
	Depth int `json:"depth,omitempty"`
	// Status is the status of an injected message: pending, completed (when empty) or failed.
	Status string `json:"status,omitempty"`
	// ReasoningContent is the reasoning of an injected assistant message.
	ReasoningContent string `json:"reasoning_content,omitempty"`
	// Policy says what happens when a queued message meets a current run: enqueue, reject, interrupt or rollback.
	// Empty means the policy of the thread or of its agent. Interrupt and rollback need the right to create
	// threads/stop.
	Policy string `json:"policy,omitempty"`
	// IdempotencyKey makes a repeat of this write change nothing; the header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}
