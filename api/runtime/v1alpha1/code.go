package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CodeRequest is the body of POST code: runCode in the thread's sandbox, without bridged functions.
// An option that is not known settles as link_error.
type CodeRequest struct {
	// Source of an ES module.
	Source string `json:"source"`
	// Language: typescript (default) or javascript.
	Language string `json:"language,omitempty"`
	// Filename shown in stacks; main.ts or main.js when empty.
	Filename string `json:"filename,omitempty"`
	// Execute says what to call.
	Execute *CodeExecute `json:"execute,omitempty"`
	// Globals by name, JSON values.
	Globals map[string]json.RawMessage `json:"globals,omitempty"`
	// Imports: bare specifier → export name → JSON value.
	Imports map[string]map[string]json.RawMessage `json:"imports,omitempty"`
	// Modules: relative specifier ("./lib/a.ts") → source.
	Modules map[string]string `json:"modules,omitempty"`
	// MemoryLimitBytes of the engine; the pool's default when 0, never above its cap.
	MemoryLimitBytes int64 `json:"memoryLimitBytes,omitempty"`
	// WallTime as a duration ("5s"); the pool's cap when absent, never above it.
	WallTime *metav1.Duration `json:"wallTime,omitempty"`
}

// CodeExecute says which export to call with which arguments.
type CodeExecute struct {
	// Fn is the export; "default" when empty.
	Fn string `json:"fn,omitempty"`
	// Args are its arguments, JSON values.
	Args []json.RawMessage `json:"args,omitempty"`
}

// CodeResult is how an execution settled.
type CodeResult struct {
	metav1.TypeMeta `json:",inline"`
	// Status: success, error, link_error, memory or terminated.
	Status string `json:"status"`
	// Result is what the export returned, as JSON. For what JSON lacks comes the nearest: undefined is null
	// and left out of objects, NaN and the infinities are null, a bigint is a number, a Date an ISO 8601
	// string, a Map an object or an array of pairs, a Set an array, bytes a base64 string.
	Result json.RawMessage `json:"result,omitempty"`
	// Reports are the values given to report(), in order.
	Reports []json.RawMessage `json:"reports,omitempty"`
	// Logs are the calls of console.
	Logs []CodeLog `json:"logs,omitempty"`
	// DurationMs that the execution took, in milliseconds.
	DurationMs float64 `json:"durationMs"`
	// Error when the status is not success.
	Error *CodeError `json:"error,omitempty"`
	// MemoryUsedBytes is the peak of the engine's heap, 0 when not known.
	MemoryUsedBytes int64 `json:"memoryUsedBytes,omitempty"`
}

// KindCodeResult is the kind of a CodeResult.
const KindCodeResult = "CodeResult"

// Statuses of a CodeResult.
const (
	CodeSuccess    = "success"
	CodeErrored    = "error"
	CodeLinkError  = "link_error"
	CodeMemory     = "memory"
	CodeTerminated = "terminated"
)

// CodeLog is one call of console.
type CodeLog struct {
	// Level: debug, info, warn or error.
	Level string `json:"level"`
	// Message as text.
	Message string `json:"message"`
	// Time in microseconds.
	Time int64 `json:"time"`
}

// CodeError is why an execution did not succeed. Positions are those of the source as written.
type CodeError struct {
	// Name of the error, such as TypeError.
	Name string `json:"name"`
	// Message of the error.
	Message string `json:"message"`
	// Stack of the error.
	Stack string `json:"stack,omitempty"`
	// Specifier is the import that failed to link.
	Specifier string `json:"specifier,omitempty"`
	// Line of a compile error, from 1.
	Line int `json:"line,omitempty"`
	// Column of a compile error, from 1.
	Column int `json:"column,omitempty"`
}
