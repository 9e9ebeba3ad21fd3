package store

import "encoding/json"

// Role is the role of a message.
type Role string

// The roles (MSG-01).
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one message of a conversation (MSG-01).
type Message struct {
	ID               string          `json:"id"`
	Seq              int64           `json:"-"` // order within the thread, assigned by the store
	Role             Role            `json:"role"`
	Content          *string         `json:"content"`
	Name             string          `json:"name,omitempty"`
	ToolCalls        []ToolCall      `json:"tool_calls,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	CreatedAt        int64           `json:"created_at"`
	ParentID         string          `json:"parent_id,omitempty"`
	Depth            int             `json:"depth,omitempty"`
	Silent           bool            `json:"silent,omitempty"`
	Metadata         map[string]any  `json:"metadata,omitempty"`
	Attachments      []Attachment    `json:"attachments,omitempty"`
	Status           MessageStatus   `json:"status,omitempty"`
	ToolStatus       string          `json:"tool_status,omitempty"` // success or error, on results
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Side             string          `json:"side,omitempty"` // side of a dual_ai agent that wrote it: a or b (AGT-02)
	RunID            string          `json:"run_id,omitempty"`
	Usage            json.RawMessage `json:"usage,omitempty"`   // of the model call that produced it
	Summary          *Summary        `json:"summary,omitempty"` // of the messages that it stands for (MSG-12)
}

// MessageStatus is the status of a message.
type MessageStatus string

// The statuses of a message.
const (
	MessagePending   MessageStatus = "pending"
	MessageCompleted MessageStatus = "completed"
	MessageFailed    MessageStatus = "failed"
)

// ToolCall is a call that a model asked for.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text, as the model wrote it
}

// Attachment is a file of the thread that belongs to a message.
type Attachment struct {
	Path     string `json:"path"`
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
	Size     int64  `json:"size,omitempty"`
}

// messageOverhead is about how much memory a message takes besides its texts.
const messageOverhead = 512

// Bytes returns about how many bytes of memory the message takes.
func (m *Message) Bytes() int64 {
	n := messageOverhead + len(m.ID) + len(m.RunID) + len(m.ReasoningContent) + len(m.Usage)
	if m.Content != nil {
		n += len(*m.Content)
	}
	for i := range m.ToolCalls {
		n += 128 + len(m.ToolCalls[i].Arguments)
	}
	return int64(n) + m.Extras()
}

// Extras returns about how many bytes of memory the name, the metadata and the attachments of the message take. Metadata has the
// values that a client gave it, which can take fifty times as much memory as they have bytes of JSON.
func (m *Message) Extras() int64 {
	n := int64(len(m.Name))
	if len(m.Metadata) > 0 {
		n += bytesOf(m.Metadata)
	}
	for _, a := range m.Attachments {
		n += 128 + int64(len(a.Path)+len(a.Name)+len(a.MimeType))
	}
	return n
}

// bytesOf returns about how many bytes of memory a decoded JSON value takes.
func bytesOf(v any) (n int64) {
	const object, property, slot = 256, 64, 16
	switch v := v.(type) {
	case map[string]any:
		n = object
		for key, value := range v {
			n += property + int64(len(key)) + bytesOf(value)
		}
	case []any:
		n = slot
		for _, value := range v {
			n += slot + bytesOf(value)
		}
	case string:
		n = slot + int64(len(v))
	case nil, bool:
	default:
		n = slot
	}
	return n
}

// Bytes returns about how many bytes of memory the messages of the page take.
func (p *MessagePage) Bytes() (n int64) {
	for i := range p.Messages {
		n += p.Messages[i].Bytes()
	}
	return n
}

// MessageQuery selects a page of messages (MSG-02).
type MessageQuery struct {
	Limit         int // 100 when 0
	Offset        int
	Order         string // "", "asc" or "desc": no order = the newest slice, oldest first
	IncludeSilent bool
	MaxDepth      int // 0 = only depth 0
	AllDepths     bool
	// MaxBytes ends the page before the texts, the metadata and the attachments of its messages have more bytes, but not before its first message, and sets
	// HasMore then. 0 means no limit. It cannot be combined with AfterSeq.
	MaxBytes int64
	AfterSeq int64 // only messages after this one, in asc order; for the engine
	// IncludeQueued adds the messages of the inbox after the stored ones, as pending and with metadata.queued = true
	// (MSG-05). They count in Total. It cannot be combined with AfterSeq.
	IncludeQueued bool
	// QueuedOnly selects only messages of the inbox. They have the same form as with IncludeQueued.
	QueuedOnly bool
}

// MessagePage is a page of messages.
type MessagePage struct {
	Messages []Message `json:"messages"`
	Total    int64     `json:"total"`
	HasMore  bool      `json:"hasMore"`
}
