package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CodeSubprotocol is the WebSocket subprotocol of GET code. Clients that pass their token as a subprotocol
// (base64url.bearer.authorization.k8s.io.<token>) offer this one too.
const CodeSubprotocol = "v1alpha1.code.runtime.skein.dev"

// MaxCodeMessageBytes of one message of that WebSocket, either way.
const MaxCodeMessageBytes = 16 << 20

// CodeRun is what the first message asks for: a CodeRequest whose values (arguments, globals, imports) are those of
// package values, and the functions that the client serves.
type CodeRun struct {
	CodeRequest `json:",inline"`
	// Functions that the code finds as globals or imports, and the client serves.
	Functions []CodeFunction `json:"functions,omitempty"`
}

// CodeFunction names a function that code may call.
type CodeFunction struct {
	// Import is the bare specifier of the module that exports it; a global when empty.
	Import string `json:"import,omitempty"`
	// Name of the global or the export.
	Name string `json:"name"`
}

// CodeClientMessage is a message of the client. Type says which of the others it has.
type CodeClientMessage struct {
	// Type: run, once and first; return or throw, for each call; terminate.
	Type string `json:"type"`
	// Run is the CodeRun of run.
	Run json.RawMessage `json:"run,omitempty"`
	// ID of the call that return and throw answer.
	ID int64 `json:"id,omitempty"`
	// Value that a return gives; undefined when absent.
	Value json.RawMessage `json:"value,omitempty"`
	// Error that throw has: name and message.
	Error *CodeError `json:"error,omitempty"`
	// Reason of terminate.
	Reason string `json:"reason,omitempty"`
}

// Types of a CodeClientMessage.
const (
	CodeMessageRun       = "run"
	CodeMessageReturn    = "return"
	CodeMessageThrow     = "throw"
	CodeMessageTerminate = "terminate"
)

// CodeServerMessage is a message of the server. Type says which of the others it has.
type CodeServerMessage struct {
	// Type: call, report and log while the code runs; result or failed, once and last.
	Type string `json:"type"`
	// ID of a call, which its answer repeats.
	ID int64 `json:"id,omitempty"`
	// Function that a call is of.
	Function *CodeFunction `json:"function,omitempty"`
	// Args of a call.
	Args []json.RawMessage `json:"args,omitempty"`
	// Value that was reported.
	Value json.RawMessage `json:"value,omitempty"`
	// Log is a call of console.
	Log *CodeLog `json:"log,omitempty"`
	// Result is how the code settled. Reports and logs came before and are not in it; the value that the export
	// returned is one of package values.
	Result *CodeResult `json:"result,omitempty"`
	// Status says why the code did not run.
	Status *metav1.Status `json:"status,omitempty"`
}

// Types of a CodeServerMessage.
const (
	CodeMessageCall   = "call"
	CodeMessageReport = "report"
	CodeMessageLog    = "log"
	CodeMessageResult = "result"
	CodeMessageFailed = "failed"
)

// Error implements error, so that a function served to code can choose the name of what it throws.
func (e *CodeError) Error() string {
	if e.Name == "" {
		return e.Message
	}
	return e.Name + ": " + e.Message
}
