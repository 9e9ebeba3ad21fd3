package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CodeRequest is the body of POST code: it runs code in the thread's sandbox, without bridged functions. An unknown
// option makes the result a link_error.
type CodeRequest struct {
	// Source is the source of an ES module.
	Source string `json:"source"`
	// Language is "typescript" (the default) or "javascript".
	Language string `json:"language,omitempty"`
	// Filename is shown in stacks. Empty means main.ts or main.js.
	Filename string `json:"filename,omitempty"`
	// Execute says which export to call.
	Execute *CodeExecute `json:"execute,omitempty"`
	// Globals holds the globals of the code by name: JSON values.
	Globals map[string]json.RawMessage `json:"globals,omitempty"`
	// Imports maps bare specifiers to their exports: JSON values by name.
	Imports map[string]map[string]json.RawMessage `json:"imports,omitempty"`
	// Modules maps relative specifiers ("./lib/a.ts") to sources.
	Modules map[string]string `json:"modules,omitempty"`
	// MemoryLimitBytes limits the memory of the engine. 0 means the pool's default. It never exceeds the pool's cap.
	MemoryLimitBytes int64 `json:"memoryLimitBytes,omitempty"`
	// WallTime limits how long the code may take, as a duration ("5s"). Absent means the pool's cap, which it never
	// exceeds.
	WallTime *metav1.Duration `json:"wallTime,omitempty"`
}

// CodeExecute says which export to call with which arguments.
type CodeExecute struct {
	// Fn is the name of the export. Empty means "default".
	Fn string `json:"fn,omitempty"`
	// Args lists the arguments: JSON values.
	Args []json.RawMessage `json:"args,omitempty"`
}

// CodeResult says how an execution ended.
type CodeResult struct {
	metav1.TypeMeta `json:",inline"`
	// Status is success, error, link_error, memory or terminated.
	Status string `json:"status"`
	// Result is what the export returned, as JSON. For values that JSON lacks it is the nearest. undefined is null and
	// omitted from objects, and NaN and the infinities are null. A bigint is a number, and a Date is an ISO 8601
	// string. A Map is an object or an array of pairs, a Set is an array, and bytes are a base64 string.
	Result json.RawMessage `json:"result,omitempty"`
	// Reports lists the values passed to report(), in order.
	Reports []json.RawMessage `json:"reports,omitempty"`
	// Logs lists the calls of console.
	Logs []CodeLog `json:"logs,omitempty"`
	// DurationMs is how long the execution took, in milliseconds.
	DurationMs float64 `json:"durationMs"`
	// Error is set when the status is not success.
	Error *CodeError `json:"error,omitempty"`
	// MemoryUsedBytes is the peak size of the engine's heap. 0 means unknown.
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
	// Level is debug, info, warn or error.
	Level string `json:"level"`
	// Message is the text.
	Message string `json:"message"`
	// Time is in microseconds.
	Time int64 `json:"time"`
}

// CodeError says why an execution did not succeed. Positions refer to the source as it was written.
type CodeError struct {
	// Name is the name of the error, such as TypeError.
	Name string `json:"name"`
	// Message is the error's message.
	Message string `json:"message"`
	// Stack is the error's stack.
	Stack string `json:"stack,omitempty"`
	// Specifier is the import that failed to link.
	Specifier string `json:"specifier,omitempty"`
	// Line is the line of a compile error, from 1.
	Line int `json:"line,omitempty"`
	// Column is the column of a compile error, from 1.
	Column int `json:"column,omitempty"`
}
