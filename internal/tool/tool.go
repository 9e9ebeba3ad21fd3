// Package tool is the interface of everything that a model may call (TOL-02). Packages such as code, builtin and
// session implement it. The engine makes the calls and records their results.
package tool

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// Definition is what a model reads about a tool.
type Definition struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of the arguments, an object; any object when empty
	// Hidden tools are not shown to the model at present, but can be called, because a call that a crash interrupted is
	// repeated.
	Hidden bool
	// Approval is set when a person must approve each call first (RUN-11).
	Approval *Approval
}

// Approval says how a call is approved.
type Approval struct {
	// Timeout is after how long an undecided call is refused; 0 means never.
	Timeout time.Duration
}

// Tool is something that a model may call.
type Tool interface {
	Definition() Definition
	// Call runs the tool. A failure is a Result with StatusError whose content says what to do. It is recorded, and the
	// conversation continues. The result may be meaningless only when ctx has ended.
	Call(ctx context.Context, call Call) Result
}

// Call is a call of a tool. Its arguments have been checked against the tool's schema.
type Call struct {
	// ID is the id of the call, unique within the thread. A repeat after a crash has the same id, so it is the
	// idempotency key of everything that the call causes.
	ID        string
	Name      string
	Arguments json.RawMessage // an object
	// Repeat says that the call may have been made before: a crash left no record of it.
	Repeat bool
}

// Status is the status of a result.
type Status string

// The statuses.
const (
	StatusSuccess Status = "success"
	StatusError   Status = "error"
)

// Result is the result of a call.
type Result struct {
	Status      Status
	Content     string
	Attachments []store.Attachment // files of the thread that belong to the result
	// Logs holds what code wrote to the console, when the call was made outside of a run.
	Logs []store.CodeLine
	// Prompt is set instead of the other fields when a prompt was called. The run makes that call (AGT-05).
	Prompt *PromptCall
	// Handoff names the agent that takes over the conversation with this result (AGT-03).
	Handoff string
	// Wait is set instead of the other fields when the result comes later.
	Wait *Wait
	// Service says how the service that was called failed, when it did.
	Service *ServiceFailure
}

// ServiceFailure is a failure of a service that a tool called over HTTP.
type ServiceFailure struct {
	// Status of its answer; 0 when there was no whole answer, and the service may have done what it was asked to.
	Status int
	// RetryAfter is how long the service asks callers to wait; 0 when it does not say.
	RetryAfter time.Duration
}

// PromptCall is a call of a prompt as a tool.
type PromptCall struct {
	Prompt    string          // name of the Prompt object
	Arguments json.RawMessage // an object
	Message   string          // the message that it answers
	// IncludeText and IncludeCalls say whether the result includes its answer and its own calls. HideErrors leaves out
	// why it failed.
	IncludeText, IncludeCalls, HideErrors bool
}

// WaitKind says what a call waits for.
type WaitKind string

// The kinds of wait.
const (
	WaitChild    WaitKind = ""         // the result of a child thread
	WaitApproval WaitKind = "approval" // a person's decision
	WaitDelay    WaitKind = "delay"    // a time
	WaitPrompt   WaitKind = "prompt"   // whatever a call made by the called prompt waits for
)

// Wait says what a call waits for whose result comes later.
type Wait struct {
	Kind      WaitKind `json:"kind,omitempty"`
	Reference string   `json:"reference,omitempty"` // of the child, in the parent's registry
	ThreadID  string   `json:"threadId,omitempty"`  // of the child, when it is known
	// Since is when an approval was requested. Until is when it, or a delay, ends; 0 for never. Both are in
	// microseconds.
	Since int64 `json:"since,omitempty"`
	Until int64 `json:"until,omitempty"`
	// For is the duration of a delay, from which the run computes Until.
	For time.Duration `json:"-"`
	// MessageID is the message that makes the call, and Name is the tool's name; both for an approval.
	MessageID string `json:"messageId,omitempty"`
	Name      string `json:"name,omitempty"`
	// Parameters is the JSON Schema of the tool's arguments, for an approval: the approver may change the arguments.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Within is the id of the prompt call within which this call is made; "" when there is none.
	Within string `json:"within,omitempty"`
	// Ready says that a called prompt can continue.
	Ready bool `json:"ready,omitempty"`
}

// Success returns a successful result with a text.
func Success(content string) Result { return Result{Status: StatusSuccess, Content: content} }

// SuccessJSON returns a successful result with a value as JSON.
func SuccessJSON(v any) Result {
	text, err := json.Marshal(v)
	if err != nil {
		return Failure("the result cannot be written as JSON: " + err.Error())
	}
	return Success(string(text))
}

// Failure returns an error result. Its text says what went wrong and what to do.
func Failure(content string) Result { return Result{Status: StatusError, Content: content} }

var nameReplacer = strings.NewReplacer("-", "_", ".", "_")

// Name returns the name with which a model calls an object: each "-" and "." becomes "_".
func Name(objectName string) string { return nameReplacer.Replace(objectName) }
