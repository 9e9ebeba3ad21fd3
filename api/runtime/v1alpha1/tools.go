package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ToolRequest is the body of POST tools/{name}.
type ToolRequest struct {
	// Arguments for the tool, an object; {} when absent.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Mode: "invoke" (the default) calls the tool beside the conversation and waits for its result; "queue" adds
	// the call to the execution under way or starts one, and does not wait.
	Mode string `json:"mode,omitempty"`
	// IdempotencyKey makes a repeat call the tool once; the header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// Modes of a ToolRequest.
const (
	ToolInvoke = "invoke"
	ToolQueue  = "queue"
)

// ToolResult is the answer to POST tools/{name}.
type ToolResult struct {
	metav1.TypeMeta `json:",inline"`
	// Status: success or error; queued when the call was queued.
	Status string `json:"status"`
	// Result of a tool that succeeded, as text.
	Result string `json:"result,omitempty"`
	// Error of one that did not, as text that says what to do.
	Error string `json:"error,omitempty"`
	// Attachments are files of the thread that belong to the result.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Logs are the calls of console that the tool's code made, and how work after its result failed. They are in the
	// thread's logs too.
	Logs []CodeLog `json:"logs,omitempty"`
}

// KindToolResult is the kind of a ToolResult.
const KindToolResult = "ToolResult"

// Statuses of a ToolResult.
const (
	ToolSuccess = "success"
	ToolError   = "error"
	ToolQueued  = "queued"
)

// DefinitionNames is a page of the names of the namespace's definitions of one kind.
type DefinitionNames struct {
	metav1.TypeMeta `json:",inline"`
	// Names, sorted.
	Names []string `json:"names"`
	// HasMore tells that there are names beyond this page.
	HasMore bool `json:"hasMore"`
}

// KindDefinitionNames is the kind of a DefinitionNames.
const KindDefinitionNames = "DefinitionNames"

// Kinds of definitions, as in definitions/{kind} and definitions/{kind}/{name}.
const (
	DefinitionModels  = "models"
	DefinitionPrompts = "prompts"
	DefinitionAgents  = "agents"
)

// Notification is the body of POST notify: a silent message to the thread's parent.
type Notification struct {
	// Content, at most 256 KiB.
	Content string `json:"content"`
	// IdempotencyKey makes a repeat say nothing new; the header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// RegistryStatus is the body of PUT status, and the answer to GET status: what the parent's registry shows of a
// child.
type RegistryStatus struct {
	// Status, at most 200 bytes: running, completed, failed, or what the child says of itself.
	Status string `json:"status"`
}

// NewEvent is the body of POST events: emit.
type NewEvent struct {
	// Event is its name: at most 100 letters, digits, "_", "-", "." and ":", the first a letter.
	Event string `json:"event"`
	// Data is any JSON value, at most 1 MiB with all else of the body; null when absent.
	Data json.RawMessage `json:"data,omitempty"`
}

// ExecutionState is the answer to GET execution: the run under way; null at rest.
type ExecutionState struct {
	metav1.TypeMeta `json:",inline"`
	// FlowID is the run's id.
	FlowID string `json:"flowId"`
	// Agent that runs.
	Agent string `json:"agent"`
	// CurrentSide: a or b.
	CurrentSide string `json:"currentSide"`
	// StepCount is how many model calls the run has made, SideAStepCount and SideBStepCount how many of them each side.
	StepCount      int `json:"stepCount"`
	SideAStepCount int `json:"sideAStepCount"`
	SideBStepCount int `json:"sideBStepCount"`
	// Stopped tells that the run is being ended, as far as the replica that was asked knows.
	Stopped bool `json:"stopped"`
	// Waiting tells that the run waits, and WaitingFor for what.
	Waiting bool `json:"waiting"`
	// WaitingFor in CamelCase, empty when it waits for children.
	WaitingFor string `json:"waitingFor,omitempty"`
	// StartedAt in microseconds.
	StartedAt int64 `json:"startedAt"`
}

// KindExecutionState is the kind of an ExecutionState.
const KindExecutionState = "ExecutionState"

// Types of the causes in the details of a Status that tell apart what its reason alone does not.
const (
	// CauseQueueFull: as many user messages wait as are allowed.
	// CauseBusy: a run is under way, and the message was to be queued only if none is.
	CauseBusy      metav1.CauseType = "ThreadBusy"
	CauseQueueFull metav1.CauseType = "QueueFull"
	// CauseEndpointFailed: the code of a ThreadEndpoint did not answer; the cause's field is the object's name.
	CauseEndpointFailed metav1.CauseType = "EndpointFailed"
	// CauseTerminated: the thread is terminated.
	CauseTerminated metav1.CauseType = "ThreadTerminated"
	// CauseNoSandbox: the thread can have no sandbox at present; its message says why and what to do.
	CauseNoSandbox metav1.CauseType = "NoSandbox"
)
