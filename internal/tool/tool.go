// Package tool is the one interface to everything that a model may call (TOL-02). code, builtin and
// session implement it in folders of their own; the engine makes the calls and records their results.
package tool

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// Definition is what a model reads of a tool.
type Definition struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of the arguments, an object; any object when empty
	// Hidden: not shown to the model at present, but still callable (a call that a crash cut off is repeated).
	Hidden bool
	// Approval is set when a person has to approve each call first (RUN-11).
	Approval *Approval
}

// Approval says how a call is approved.
type Approval struct {
	// Timeout after which a call that nobody has decided on is refused; never when 0.
	Timeout time.Duration
}

// Tool is something that a model may call.
type Tool interface {
	Definition() Definition
	// Call runs the tool. Whatever goes wrong is a Result with StatusError whose content says what to do:
	// it is recorded and the conversation goes on. Only when ctx ended may the result be meaningless.
	Call(ctx context.Context, call Call) Result
}

// Call of a tool. Its arguments have been checked against the tool's schema.
type Call struct {
	// ID is the call's, unique within the thread: a repeat after a crash carries the same one, so it is
	// the idempotency key of all that the call causes.
	ID        string
	Name      string
	Arguments json.RawMessage // an object
	// Repeat: a crash left no trace of whether this call was made before.
	Repeat bool
}

// Status of a result.
type Status string

// The statuses.
const (
	StatusSuccess Status = "success"
	StatusError   Status = "error"
)

// Result of a call.
type Result struct {
	Status      Status
	Content     string
	Attachments []store.Attachment // files of the thread that belong to the result
	// Logs are what code wrote to the console, where the call was made outside of a run.
	Logs []store.CodeLine
	// Prompt is set instead of all else when the call is one of a prompt, which the run makes (AGT-05).
	Prompt *PromptCall
	// Handoff names the agent that the conversation passes to with this result (AGT-03).
	Handoff string
	// Wait is set instead of all else when the result comes later.
	Wait *Wait
}

// PromptCall is a call of a prompt as a tool.
type PromptCall struct {
	Prompt    string          // the Prompt object
	Arguments json.RawMessage // an object
	Message   string          // what it answers
	// IncludeText and IncludeCalls say what becomes of its answer and of its own calls in the result, HideErrors that
	// nothing is said of why it failed.
	IncludeText, IncludeCalls, HideErrors bool
}

// WaitKind is what a call waits for.
type WaitKind string

// The kinds of wait.
const (
	WaitChild    WaitKind = ""         // the result of a child thread
	WaitApproval WaitKind = "approval" // a person's decision
	WaitDelay    WaitKind = "delay"    // a time
	WaitPrompt   WaitKind = "prompt"   // what a call waits for that the called prompt has made
)

// Wait says what a call waits for whose result comes later.
type Wait struct {
	Kind      WaitKind `json:"kind,omitempty"`
	Reference string   `json:"reference,omitempty"` // of the child, as the parent's registry has it
	ThreadID  string   `json:"threadId,omitempty"`  // of the child, when it is known already
	// Since when an approval is asked for and Until when it, or a delay, is over, in microseconds; 0 for never.
	Since int64 `json:"since,omitempty"`
	Until int64 `json:"until,omitempty"`
	// For is how long a delay takes; the run makes Until of it.
	For time.Duration `json:"-"`
	// MessageID of the message that makes the call, and Name of the tool, of an approval.
	MessageID string `json:"messageId,omitempty"`
	Name      string `json:"name,omitempty"`
	// Parameters is the JSON Schema of the tool's arguments, of an approval: who approves the call may give others.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Within is the call of the prompt that makes the call; "" where none does.
	Within string `json:"within,omitempty"`
	// Ready: a called prompt can go on.
	Ready bool `json:"ready,omitempty"`
}

// Success makes a result out of a text.
func Success(content string) Result { return Result{Status: StatusSuccess, Content: content} }

// SuccessJSON makes a result out of a value.
func SuccessJSON(v any) Result {
	text, err := json.Marshal(v)
	if err != nil {
		return Failure("the result cannot be written as JSON: " + err.Error())
	}
	return Success(string(text))
}

// Failure makes a result out of a text that says what went wrong and what to do.
func Failure(content string) Result { return Result{Status: StatusError, Content: content} }

var nameReplacer = strings.NewReplacer("-", "_", ".", "_")

// Name gives the name by which a model calls an object: each "-" and "." of it is turned into "_".
func Name(objectName string) string { return nameReplacer.Replace(objectName) }
