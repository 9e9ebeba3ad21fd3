package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ToolRequest is the body of POST tools/{name}.
type ToolRequest struct {
	// Arguments is the object for the tool, {} when absent.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Mode is "invoke" or "queue". "invoke" (the default) calls the tool beside the conversation and waits for its
	// result. "queue" adds the call to the current execution or starts one, and does not wait.
	Mode string `json:"mode,omitempty"`
	// IdempotencyKey makes a repeat of the request call the tool only once; the header Idempotency-Key does the same.
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
	// Status is success or error, or queued when the call was queued.
	Status string `json:"status"`
	// Result is the result of a tool that succeeded, as text.
	Result string `json:"result,omitempty"`
	// Error is the error of a tool that failed, as text that says what to do.
	Error string `json:"error,omitempty"`
	// Attachments lists files of the thread that belong to the result.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Logs lists the calls of console in the tool's code, and how work after its result failed. They are in the
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
	// Names is the page, sorted.
	Names []string `json:"names"`
	// HasMore reports whether more names follow.
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
	// Content is at most 256 KiB.
	Content string `json:"content"`
	// IdempotencyKey makes a repeat of the request send nothing new; the header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// RegistryStatus is the body of PUT status and the answer to GET status: the status of a child in its parent's
// registry.
type RegistryStatus struct {
	// Status is at most 200 bytes: running, completed, failed, or a status that the child set itself.
	Status string `json:"status"`
}

// NewEvent is the body of POST events, which emits an event.
type NewEvent struct {
	// Event is the name: at most 100 letters, digits, "_", "-", "." and ":", the first a letter.
	Event string `json:"event"`
	// Data is any JSON value, at most 1 MiB including the rest of the body; null when absent.
	Data json.RawMessage `json:"data,omitempty"`
}

// ExecutionState is the answer to GET execution: the current run, or null when the thread rests.
type ExecutionState struct {
	metav1.TypeMeta `json:",inline"`
	// FlowID is the run's id.
	FlowID string `json:"flowId"`
	// Agent is the agent that runs.
	Agent string `json:"agent"`
	// CurrentSide is a or b.
	CurrentSide string `json:"currentSide"`
	// StepCount is how many model calls the run has made. SideAStepCount and SideBStepCount are the calls of each
	// side.
	StepCount      int `json:"stepCount"`
	SideAStepCount int `json:"sideAStepCount"`
	SideBStepCount int `json:"sideBStepCount"`
	// Stopped is true when the run is being ended, as far as the replica that answers knows.
	Stopped bool `json:"stopped"`
	// Waiting is true when the run waits; WaitingFor says for what.
	Waiting bool `json:"waiting"`
	// WaitingFor is in CamelCase. It is empty when the run waits for children.
	WaitingFor string `json:"waitingFor,omitempty"`
	// StartedAt is in microseconds.
	StartedAt int64 `json:"startedAt"`
}

// KindExecutionState is the kind of an ExecutionState.
const KindExecutionState = "ExecutionState"

// Types of the causes in the details of a Status, for cases that its reason alone does not distinguish.
const (
	// CauseBusy means that a run is active, and that the message was to be queued only if none is. CauseQueueFull
	// means that the maximum number of user messages waits already.
	CauseBusy      metav1.CauseType = "ThreadBusy"
	CauseQueueFull metav1.CauseType = "QueueFull"
	// CauseEndpointFailed means that the code of a ThreadEndpoint did not answer. The cause's field is the object's
	// name.
	CauseEndpointFailed metav1.CauseType = "EndpointFailed"
	// CauseTerminated means that the thread is terminated.
	CauseTerminated metav1.CauseType = "ThreadTerminated"
	// CauseNotSetUp means that the Thread object exists and its conversation is not set up yet. Nothing was stored. The message says what
	// the Thread waits for.
	CauseNotSetUp metav1.CauseType = "ThreadNotSetUp"
	// CauseNoSandbox means that the thread can have no sandbox at present. The message says why and what to do.
	CauseNoSandbox metav1.CauseType = "NoSandbox"
)
