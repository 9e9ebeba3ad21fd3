package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CodeSubprotocol is the WebSocket subprotocol of GET code. A client that sends its token as a subprotocol
// (base64url.bearer.authorization.k8s.io.<token>) must offer this one too.
const CodeSubprotocol = "v1alpha1.code.runtime.skein.dev"

// MaxCodeMessageBytes is the maximum size of one message on that WebSocket, in either direction.
const MaxCodeMessageBytes = 16 << 20

// CodeRun is what the first message requests: a CodeRequest whose values (arguments, globals, imports) are those of
// package values, and the functions that the client provides.
type CodeRun struct {
	CodeRequest `json:",inline"`
	// Functions lists what the client provides to the code as globals or imports.
	Functions []CodeFunction `json:"functions,omitempty"`
}

// CodeFunction names a function that code may call.
type CodeFunction struct {
	// Import is the bare specifier of the module that exports it. Empty means a global.
	Import string `json:"import,omitempty"`
	// Name is the name of the global or the export.
	Name string `json:"name"`
}

// CodeClientMessage is a message of the client. Type determines which other fields it has.
type CodeClientMessage struct {
	// Type is run, once and first; return or throw, for each call; or terminate.
	Type string `json:"type"`
	// Run is the CodeRun of a run message.
	Run json.RawMessage `json:"run,omitempty"`
	// ID is the id of the call that return and throw answer.
	ID int64 `json:"id,omitempty"`
	// Value is what a function returned. Absent means undefined.
	Value json.RawMessage `json:"value,omitempty"`
	// Error is what a function threw: name and message.
	Error *CodeError `json:"error,omitempty"`
	// Reason is why the client terminates the code.
	Reason string `json:"reason,omitempty"`
}

// Types of a CodeClientMessage.
const (
	CodeMessageRun       = "run"
	CodeMessageReturn    = "return"
	CodeMessageThrow     = "throw"
	CodeMessageTerminate = "terminate"
)

// CodeServerMessage is a message of the server. Type determines which other fields it has.
type CodeServerMessage struct {
	// Type is call, report or log while the code runs; result or failed, once and last.
	Type string `json:"type"`
	// ID is the id of a call, which its answer repeats.
	ID int64 `json:"id,omitempty"`
	// Function is the function that a call calls.
	Function *CodeFunction `json:"function,omitempty"`
	// Args lists the arguments of a call.
	Args []json.RawMessage `json:"args,omitempty"`
	// Value is the reported value.
	Value json.RawMessage `json:"value,omitempty"`
	// Log is a call of console.
	Log *CodeLog `json:"log,omitempty"`
	// Result says how the code ended. Reports and logs were sent before and are not in it. The value that the export
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

// Error implements error, so that a function provided to code can choose the name of its errors.
func (e *CodeError) Error() string {
	if e.Name == "" {
		return e.Message
	}
	return e.Name + ": " + e.Message
}
