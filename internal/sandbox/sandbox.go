// Package sandbox is the contract between whoever wants untrusted JavaScript or TypeScript executed
// and the pod (or local process) that executes it. It holds types only; the client package dials a
// supervisor, the supervisor package answers, and neither is imported from here.
//
// Words: a sandbox is one supervisor process and belongs to exactly one thread for its whole life
// (COD-08). An isolate is one fresh JavaScript engine in one single-use child process.
package sandbox

import (
	"context"
	"errors"
	"time"
)

// ErrNotTrusted is wrapped by the error of a dial when the sandbox's certificate is not what it must be:
// trying again does not help.
var ErrNotTrusted = errors.New("the sandbox's certificate is not trusted")

// Sandbox is a live connection to one supervisor. It is safe for concurrent use.
type Sandbox interface {
	// RunCode starts source in a fresh isolate (COD-01). It never returns an error: whatever goes
	// wrong, a lost connection included, settles the Execution with a Result that says so.
	RunCode(ctx context.Context, req CodeRequest) Execution
	// OpenIsolate starts the isolate that the definition code (tools, hooks, effects) of one run
	// shares (STA-08). Cancelling ctx kills the isolate.
	OpenIsolate(ctx context.Context, req IsolateRequest) (Isolate, error)
	// Close drops the connection; executions under way settle as terminated, retriable where nothing of them ran.
	Close() error
}

// Language of a source text.
type Language string

// The languages that runCode takes; the zero value means TypeScript (COD-01).
const (
	TypeScript Language = "typescript"
	JavaScript Language = "javascript"
)

// HostFunc is a function of the host that code in an isolate may await. Arguments and result are
// values as package value describes them. An error reaches the code as a thrown Error with its
// message; wrap with *Error to choose the name.
type HostFunc func(ctx context.Context, args []any) (any, error)

// CodeRequest is one runCode call (COD-02).
type CodeRequest struct {
	Source   string
	Filename string   // shown in stacks; "main.ts" or "main.js" when empty
	Language Language // TypeScript when empty

	Fn   string // export to call; "default" when empty
	Args []any  // its arguments

	Globals map[string]Binding            // global name → value or function
	Imports map[string]map[string]Binding // bare specifier → export name → value or function
	Modules map[string]string             // relative ES modules, "./lib/a.ts" → source

	MemoryLimitBytes int64         // 0 = the pool's default; never above its cap
	WallTime         time.Duration // 0 = the pool's cap
	Report           func(v any)   // called in order for each report(value); may be nil
	Log              func(l Log)   // called in order for each call of console; may be nil

	// Depth counts the runs that wait for this one, itself included: 0 and 1 are a run that no other waits for.
	// A nested run does not queue for long, since those that hold the places wait for it.
	Depth int
}

// MaxDepth of runs that wait for each other.
const MaxDepth = 4

// ErrBusy says that a sandbox runs as much as it may, and that no place came free in time. The sandbox is a good
// one: what it runs goes on.
var ErrBusy = errors.New("the sandbox is busy")

// Binding is what a global or an import is bound to: a function of the host when Func is set, else Value.
type Binding struct {
	Value any
	Func  HostFunc
}

// Execution is the handle of a runCode call (COD-04): the first settle wins.
type Execution interface {
	// Wait gives the result once settled; when ctx ends first it terminates the code and still returns a Result.
	Wait(ctx context.Context) Result
	// Terminate ends the code; the result carries the reason.
	Terminate(reason string)
	// Done is closed when the execution has settled.
	Done() <-chan struct{}
	// Reports gives the values reported so far.
	Reports() []any
}

// Status of a settled execution (COD-05).
type Status string

// Every status that an execution can settle with.
const (
	StatusSuccess    Status = "success"
	StatusError      Status = "error"
	StatusLinkError  Status = "link_error"
	StatusMemory     Status = "memory"
	StatusTerminated Status = "terminated"
)

// Result of an execution (COD-05).
type Result struct {
	Status          Status
	Value           any // what the export returned (package value)
	Reports         []any
	Logs            []Log
	Duration        time.Duration
	Error           *Error // nil on success
	MemoryUsedBytes int64  // peak of the engine's heap; 0 when not known
	Retriable       bool   // the sandbox went away before any of the code ran: safe to run again elsewhere
}

// MaxIsolateLogs and MaxIsolateLogBytes bound what an isolate, whose life is a whole run, sends of its console.
const (
	MaxIsolateLogs     = 10_000
	MaxIsolateLogBytes = 8 << 20
)

// Log is one console call.
type Log struct {
	Level   string // debug, info, warn, error
	Message string
	Time    time.Time
}

// Error is an error of the code, or of the host towards the code. Positions in Stack are those of the
// source as written, TypeScript included. It implements error.
type Error struct {
	Name      string
	Message   string
	Stack     string
	Specifier string // the import that failed, for link errors
	Line      int    // 1-based position of a compile error, 0 when not known
	Column    int
}

// Error implements error.
func (e *Error) Error() string {
	if e.Name == "" {
		return e.Message
	}
	return e.Name + ": " + e.Message
}

// IsolateRequest opens an isolate for definition code.
type IsolateRequest struct {
	// Modules are compiled JavaScript modules by name (see package compile); each may import
	// "@standardagents/builder" and "zod" and the other modules by relative name.
	Modules map[string]Module
	// Host serves every `state.*` call of the code: method is the name after "state." ("getMessages").
	// invocation is the id that the caller gave to Invoke, so that a call is attributed to the tool
	// call that made it. Function arguments (runCode's bridges) arrive as FuncRef values.
	Host func(ctx context.Context, invocation, method string, args []any) (any, error)
	// Static are the plain read-only properties of state ("threadId", "arguments", …).
	Static           map[string]any
	MemoryLimitBytes int64
	WallTime         time.Duration // for each Invoke; 0 = the pool's cap
	Log              func(invocation string, l Log)
}

// Module is compiled definition code.
type Module struct {
	Code      string // ES module, JavaScript
	SourceMap []byte // maps back to Filename; may be nil
	Filename  string // as written by the user, "tool.ts"
	// ReadsRuntimeContext: the code names state._notPackableRuntimeContext (TOL-04).
	ReadsRuntimeContext bool
	// Facts are what was found out about the code where it was compiled; nil where nothing was.
	Facts *Facts `json:",omitempty"`
}

// FuncRef names a function that lives in an isolate and that the host may call while the isolate lives.
type FuncRef int64

// MarshalJSON implements json.Marshaler: a function is no JSON.
func (FuncRef) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a function cannot be written as JSON")
}

// Isolate runs definition code; state.context is one object for its whole life (STA-08).
type Isolate interface {
	// Describe loads the module and gives what its default export declares: kind ("tool", "effect",
	// "hook"), description and args as JSON Schema when it says so, else nil.
	Describe(ctx context.Context, module string) (*Description, error)
	// Invoke calls the definition's execute with (state, args). Errors of the code are *Error. When
	// the isolate died (memory, kill, lost pod) the error wraps ErrIsolateGone and the isolate is unusable.
	Invoke(ctx context.Context, invocation, module string, args any) (any, error)
	// Call calls a function that the code handed to the host.
	Call(ctx context.Context, ref FuncRef, args []any) (any, error)
	// Close ends the child process.
	Close() error
}

// Description is what a definition module declares of itself.
type Description struct {
	Kind        string
	Description string
	Args        map[string]any // JSON Schema, nil when not declared
}

// IsolateGoneError says that the child process or the pod of an isolate went away, and why.
type IsolateGoneError struct {
	Status Status // memory or terminated
	Reason string
	// Started is false when nothing of the code had run yet, so that running it elsewhere is safe.
	Started bool
}

// Error implements error.
func (e *IsolateGoneError) Error() string {
	return "isolate ended (" + string(e.Status) + "): " + e.Reason
}
