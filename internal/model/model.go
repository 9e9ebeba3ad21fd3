// Package model is the one interface to language models (AGT-06). openai and scripted implement it
// in folders of their own; provider makes the client that a Model's spec asks for.
package model

import (
	"context"
	"encoding/json"
	"strings"
)

// Client speaks with one model. It is safe for concurrent use.
type Client interface {
	// Stream asks for one answer. Each piece of it goes to emit as it comes, from one goroutine at a time
	// and never after Stream has returned; the Response holds all of it again. Errors are *Error, or the
	// context's own when it ended. Nothing is tried twice: see WithRetries.
	Stream(ctx context.Context, req Request, emit func(Delta)) (*Response, error)
}

// Role of a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message of the conversation as the model sees it.
type Message struct {
	Role       Role
	Content    string
	Name       string     // of the tool, on results
	ToolCalls  []ToolCall // of an assistant
	ToolCallID string     // on results: the call that it answers
	// Attachments name the files that belong to the message, such as "/a.csv (text/csv, 120 bytes)".
	Attachments []string
	// Images of a user's message, or of a result; a client whose model has no eyes leaves them out.
	Images []Image
	// Metadata is what an earlier Response asked to keep with its message.
	Metadata map[string]any
}

// Text is the content with its attachments named, for models that know no attachments.
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

// ToolCall is a call that the model asks for.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON text as the model wrote it, valid or not
}

// Tool that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of an object; any object when empty
}

// ToolChoice tells what the model may do with the tools.
type ToolChoice string

// The choices; empty is auto.
const (
	ToolChoiceAuto     ToolChoice = "auto"
	ToolChoiceNone     ToolChoice = "none"
	ToolChoiceRequired ToolChoice = "required"
)

// Request for one answer.
type Request struct {
	Messages   []Message // the system prompt first
	Tools      []Tool
	ToolChoice ToolChoice
	// ParallelToolCalls tells whether one answer may ask for several calls; the provider's default when nil.
	ParallelToolCalls *bool
	// Arguments of the thread, an object or nil; scripts use them.
	Arguments json.RawMessage
	// Schema is the JSON Schema that the answer's content must have, which is JSON then; any text when empty.
	Schema json.RawMessage
	// SchemaName names it to the provider, in letters, digits, _ and -; "answer" when empty.
	SchemaName string
	// Reasoning that is asked for; the provider's default when nil.
	Reasoning *Reasoning
	// Try counts the tries of one call, from 0 on; WithRetries sets it.
	Try int
	// Session is the provider's conversation that this one goes on with, as an earlier Response named it; "" for none
	// (RUN-06). Messages hold the whole conversation all the same.
	Session string
	// SessionMessages is how many of Messages, from the front, the session knows already. They do not count, and Messages
	// are to be sent without, the SessionLeftOut oldest messages behind the system prompt, which the session never had.
	SessionMessages, SessionLeftOut int
}

// Reasoning tells how much a model thinks before it answers. Either Effort or MaxTokens is set.
type Reasoning struct {
	Effort    string // none, minimal, low, medium or high
	MaxTokens int64  // that may be spent on it
	// Exclude keeps what was thought out of the answer.
	Exclude bool
}

// Delta is a piece of an answer under way.
type Delta struct {
	Text      string
	Reasoning string
	// Reset takes back all pieces so far: the call is made anew.
	Reset bool
}

// Response is a whole answer.
type Response struct {
	Content      string
	Reasoning    string
	ToolCalls    []ToolCall
	FinishReason string // as the provider gave it: stop, tool_calls, length, …
	Usage        *Usage // nil when the provider did not say
	// Session is the provider's conversation that this answer belongs to, to be given with the next request; "" when
	// there is none.
	Session string
	// Refused: the content tells why the model gives no answer.
	Refused bool
	// Model is the name of the Model that answered, where it is not the one that was asked: a fallback.
	Model string
	// Failures say, where a fallback answered, why those before it did not.
	Failures []string
	// Trimmed says what the model did not get to read, and Read are the messages that it did; nil when it read all.
	Trimmed *Trimmed
	Read    []Message
	// Metadata is stored on the assistant message and comes back with it in later requests.
	Metadata map[string]any
}
