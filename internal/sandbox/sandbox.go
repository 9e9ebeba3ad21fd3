// Package sandbox is the contract between code that wants untrusted JavaScript or TypeScript executed and the pod (or
// local process) that executes it. It holds only types. Package client dials a supervisor, package supervisor
// answers, and neither is imported here.
//
// A sandbox is one supervisor process and belongs to exactly one thread for its whole life (COD-08). An isolate is
// one fresh JavaScript engine in one single-use child process.
package sandbox

import (
	"context"
	"errors"
	"time"
)

// ErrNotTrusted is wrapped by the error of a dial when the sandbox's certificate is not valid for it. Retrying is
// useless.
var ErrNotTrusted = errors.New("the sandbox's certificate is not trusted")

// ErrIncompatible is wrapped by the error of a dial when the sandbox and this manager have no version of their protocol in common.
// Retrying is useless.
var ErrIncompatible = errors.New("the sandbox is of an incompatible release")

// Sandbox is a live connection to one supervisor. It is safe for concurrent use.
type Sandbox interface {
	// RunCode starts source in a fresh isolate (COD-01). It never returns an error: every failure, including a lost
	// connection, settles the Execution with a Result that says so.
	RunCode(ctx context.Context, req CodeRequest) Execution
	// OpenIsolate starts the isolate that the definition code (tools, hooks, effects) of one run shares (STA-08).
	// Cancelling ctx kills the isolate.
	OpenIsolate(ctx context.Context, req IsolateRequest) (Isolate, error)
	// Close closes the connection. Current executions settle as terminated, as retriable where none of their code
	// ran.
	Close() error
}

// Language is the language of a source text.
type Language string

// The languages of runCode. The zero value means TypeScript (COD-01).
const (
	TypeScript Language = "typescript"
	JavaScript Language = "javascript"
)

// HostFunc is a function of the host that code in an isolate may call and await. Arguments and result are values of
// package value. An error reaches the code as a thrown Error with its message; use *Error to choose the name.
type HostFunc func(ctx context.Context, args []any) (any, error)

// CodeRequest is one runCode call (COD-02).
type CodeRequest struct {
	Source   string
	Filename string   // shown in stacks; empty means "main.ts" or "main.js"
	Language Language // empty means TypeScript

	Fn   string // the export to call; empty means "default"
	Args []any  // its arguments

	Globals map[string]Binding            // global name → value or function
	Imports map[string]map[string]Binding // bare specifier → export name → value or function
	Modules map[string]string             // relative ES modules, "./lib/a.ts" → source

	MemoryLimitBytes int64         // 0 means the pool's default; never exceeds its cap
	WallTime         time.Duration // 0 means the pool's cap
	Report           func(v any)   // called in order for each report(value); may be nil
	Log              func(l Log)   // called in order for each call of console; may be nil

	// Depth counts the runs that wait for this one, including itself: 0 and 1 mean that no other run waits. A nested
	// run queues only briefly, because the runs that hold the places wait for it.
	Depth int
}

// MaxDepth is the maximum number of runs that wait for each other.
const MaxDepth = 4

// ErrBusy means that a sandbox runs as much as it may, and that no place became free in time. The sandbox works, and
// what it runs continues.
var ErrBusy = errors.New("the sandbox is busy")

// Binding is the value of a global or an import: a function of the host when Func is set, else Value.
type Binding struct {
	Value any
	Func  HostFunc
}

// Execution is the handle of a runCode call (COD-04). Only the first outcome counts.
type Execution interface {
	// Wait returns the result once settled. When ctx ends first it terminates the code and still returns a Result.
	Wait(ctx context.Context) Result
	// Terminate ends the code. The result has the reason.
	Terminate(reason string)
	// Done returns a channel that is closed when the execution has settled.
	Done() <-chan struct{}
	// Reports returns the values that were reported so far.
	Reports() []any
}

// Status is the status of a settled execution (COD-05).
type Status string

// Every status of a settled execution.
const (
	StatusSuccess    Status = "success"
	StatusError      Status = "error"
	StatusLinkError  Status = "link_error"
	StatusMemory     Status = "memory"
	StatusTerminated Status = "terminated"
)

// Result is the result of an execution (COD-05).
type Result struct {
	Status          Status
	Value           any // what the export returned (package value)
	Reports         []any
	Logs            []Log
	Duration        time.Duration
	Error           *Error // nil on success
	MemoryUsedBytes int64  // peak size of the engine's heap; 0 means unknown
	Retriable       bool   // the sandbox disappeared before any of the code ran, so that it is safe to run it elsewhere
}

// MaxIsolateLogs and MaxIsolateLogBytes limit the console output of an isolate, which lives as long as a whole run.
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

// Error is an error of the code, or an error of the host that the code sees. Positions in Stack refer to the original
// source, including TypeScript. It implements error.
type Error struct {
	Name      string
	Message   string
	Stack     string
	Specifier string // the import that failed, for link errors
	Line      int    // 1-based position of a compile error; 0 means unknown
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
	// Modules are compiled JavaScript modules by name (see package compile). Each may import
	// "@standardagents/builder", "zod" and, by relative name, the other modules.
	Modules map[string]Module
	// Host serves every `state.*` call of the code. method is the name after "state." ("getMessages"). invocation is
	// the id that the caller passed to Invoke, so that a call is attributed to the tool call that made it. Function
	// arguments (runCode's bridges) are FuncRef values.
	Host func(ctx context.Context, invocation, method string, args []any) (any, error)
	// Static are the plain read-only properties of state ("threadId", "arguments", …).
	Static           map[string]any
	MemoryLimitBytes int64
	WallTime         time.Duration // for each Invoke; 0 means the pool's cap
	Log              func(invocation string, l Log)
}

// Module is compiled definition code.
type Module struct {
	Code      string // an ES module in JavaScript
	SourceMap []byte // maps back to Filename; may be nil
	Filename  string // the user's name, such as "tool.ts"
	// ReadsRuntimeContext means that the code names state._notPackableRuntimeContext (TOL-04).
	ReadsRuntimeContext bool
	// Facts are the facts that the compiler found out about the code, or nil.
	Facts *Facts `json:",omitempty"`
}

// FuncRef identifies a function in an isolate that the host may call while the isolate lives.
type FuncRef int64

// MarshalJSON implements json.Marshaler. It always fails, because a function is not JSON.
func (FuncRef) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a function cannot be written as JSON")
}

// Isolate runs definition code. state.context is one object for its whole life (STA-08).
type Isolate interface {
	// Describe loads the module and returns what its default export declares: kind ("tool", "effect", "hook"),
	// description and, if declared, args as JSON Schema, else nil.
	Describe(ctx context.Context, module string) (*Description, error)
	// Invoke calls the definition's execute with (state, args). Errors of the code are *Error. When the isolate died
	// (memory, kill, lost pod), the error is an *IsolateGoneError and the isolate is unusable.
	Invoke(ctx context.Context, invocation, module string, args any) (any, error)
	// Call calls a function that the code passed to the host.
	Call(ctx context.Context, ref FuncRef, args []any) (any, error)
	// Close ends the child process.
	Close() error
}

// Description is what a definition module declares about itself.
type Description struct {
	Kind        string
	Description string
	Args        map[string]any // JSON Schema; nil when not declared
}

// IsolateGoneError means that the child process or the pod of an isolate is gone, and says why.
type IsolateGoneError struct {
	Status Status // memory or terminated
	Reason string
	// Started is false when none of the code had run yet, so that it is safe to run it elsewhere.
	Started bool
}

// Error implements error.
func (e *IsolateGoneError) Error() string {
	return "isolate ended (" + string(e.Status) + "): " + e.Reason
}
