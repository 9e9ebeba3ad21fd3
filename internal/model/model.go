// Package model is the interface of language models (AGT-06). Packages such as openai, anthropic and scripted implement
// it. Package provider creates the client that a Model's spec asks for.
package model

import (
	"context"
	"encoding/json"
	"strings"
)

// Client is a client of one model. It is safe for concurrent use.
type Client interface {
	// Stream requests one answer. It passes each piece to emit as the piece arrives, from one goroutine at a time and
	// never after Stream has returned. The Response contains everything again. Errors are *Error, or the context's own
	// when it ended. Nothing is retried: see WithRetries.
	Stream(ctx context.Context, req Request, emit func(Delta)) (*Response, error)
}

// Role is the role of a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is a message of the conversation as the model sees it.
type Message struct {
	Role       Role
	Content    string
	Name       string     // of the tool, for results
	ToolCalls  []ToolCall // of an assistant
	ToolCallID string     // for results: the call that the result answers
	// Attachments describes the files of the message, such as "/a.csv (text/csv, 120 bytes)".
	Attachments []string
	// Images are the images of a user's message or of a result. A client leaves them out when its model cannot see.
	Images []Image
	// Metadata is what an earlier Response stored with its message.
	Metadata map[string]any
}

// Text returns the content with the names of its attachments, for models without attachments.
func (m Message) Text() string {
	if len(m.Attachments) == 0 {
		return m.Content
	}
	note := "[attached files: " + strings.Join(m.Attachments, ", ") + "]"
	if m.Content == "" {
		return note
	}
	return m.Content + "\n\n" + note
}

// MetadataStays marks, in the metadata of a message directly behind the system prompt, that the message stays when the
// oldest messages are left out: a summary of those before it.
const MetadataStays = "stays"

// Stays reports whether the message has MetadataStays.
func (m *Message) Stays() bool { return m.Metadata[MetadataStays] == true }

// Head returns how many of the first messages always stay: the system prompt, and those behind it that say so.
func Head(messages []Message) int {
	if len(messages) == 0 {
		return 0
	}
	n := 1
	for n < len(messages) && messages[n].Stays() {
		n++
	}
	return n
}

// ToolCall is a call that the model asks for.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON text as the model wrote it, valid or not
}

// Tool is a tool that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of an object; any object when empty
}

// ToolChoice says what the model may do with the tools.
type ToolChoice string

// The choices; empty is auto.
const (
	ToolChoiceAuto     ToolChoice = "auto"
	ToolChoiceNone     ToolChoice = "none"
	ToolChoiceRequired ToolChoice = "required"
)

// Request is a request for one answer.
type Request struct {
	Messages   []Message // the system prompt first
	Tools      []Tool
	ToolChoice ToolChoice
	// ParallelToolCalls says whether one answer may contain several calls; the provider's default when nil.
	ParallelToolCalls *bool
	// Arguments are those of the thread, an object or nil. Scripts use them.
	Arguments json.RawMessage
	// Schema is the JSON Schema of the answer's content, which is then JSON; any text when empty.
	Schema json.RawMessage
	// SchemaName is the schema's name for the provider, in letters, digits, _ and -; "answer" when empty.
	SchemaName string
	// Reasoning is the requested reasoning; the provider's default when nil.
	Reasoning *Reasoning
	// Try counts the attempts of one call from 0. WithRetries sets it.
	Try int
	// Deferral allows the call to be deferred with ErrDeferred when it would wait behind many others, so that the caller does not have to
	// wait; nil for a call that waits for its turn. Once the operation has sent a request, its further calls wait for their turn.
	Deferral *Deferral
	// Session is the provider's conversation that this one continues, from an earlier Response; "" for none (RUN-06).
	// Messages contains the whole conversation nevertheless.
	Session string
	// SessionMessages is how many of Messages, from the first, the session already knows. SessionLeftOut is how many of
	// the oldest messages after the system prompt the session never had. They do not count in SessionMessages and are
	// not sent.
	SessionMessages, SessionLeftOut int
}

// Reasoning says how much a model reasons before it answers. Exactly one of Effort and MaxTokens is set.
type Reasoning struct {
	Effort    string // none, minimal, low, medium or high
	MaxTokens int64  // tokens that reasoning may use
	// Exclude keeps the reasoning out of the answer.
	Exclude bool
}

// Delta is a piece of an unfinished answer.
type Delta struct {
	Text      string
	Reasoning string
	// Reset discards all pieces so far, because the call is made again.
	Reset bool
}

// Response is a complete answer.
type Response struct {
	Content      string
	Reasoning    string
	ToolCalls    []ToolCall
	FinishReason string // from the provider: stop, tool_calls, length, …
	Usage        *Usage // nil when the provider did not report it
	// Session is the provider's conversation that this answer belongs to, for the next request; "" when there is none.
	Session string
	// Refused says that the content explains why the model gives no answer.
	Refused bool
	// Model is the name of the fallback Model that answered; empty when the requested Model did.
	Model string
	// Failures says why the Models before the fallback failed.
	Failures []string
	// Trimmed says what the model did not get to read, and Read holds the messages that it read. Both are nil when it
	// read everything.
	Trimmed *Trimmed
	Read    []Message
	// Metadata is stored on the assistant message and included in later requests.
	Metadata map[string]any
}
