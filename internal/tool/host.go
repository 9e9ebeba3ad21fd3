package tool

import (
	"context"
	"encoding/json"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/scopes"
)

// Host is what one execution (a run, the firing of an effect, a call from outside) provides to its tools. The engine
// makes it.
type Host struct {
	// Thread is the thread as it was when the execution began.
	Thread *store.Thread
	// State is the thread. Within a run it is bound to the run's fence.
	State *thread.State
	// RunID is the id of the run; empty outside of a run.
	RunID string
	// Session is the state of the execution and of its thread (STA-01).
	Session *scopes.Session

	Threads *thread.Service
	// Execution is the run; nil outside of a run.
	Execution   Execution
	Family      Family
	Effects     Effects
	Children    Children
	Definitions Definitions
	Code        Code
	Tools       Caller
	Lifecycle   Lifecycle
	Handoffs    Handoffs
	// Others reaches threads that are not of the family; nil where there are none.
	Others Others
	// Progress reports the progress of a call to watchers of the thread; nil when there can be none.
	Progress func(ctx context.Context, p Progress)
	// Memory is the memory of the thread's agent; nil when it keeps none.
	Memory Memory
	// Redact removes the secrets of the thread's namespace from a text. It must be called before the text is cut. nil
	// leaves the text as it is.
	Redact func(text string) string
}

// Redacted returns a text without the secrets of the thread's namespace.
func (h *Host) Redacted(text string) string {
	if h.Redact == nil {
		return text
	}
	return h.Redact(text)
}

// Progress is the progress of a call, as the tool reports it.
type Progress struct {
	ToolCallID string  `json:"toolCallId"`
	Name       string  `json:"name"`
	Progress   float64 `json:"progress"`
	Total      float64 `json:"total,omitempty"` // 0 when unknown
	Message    string  `json:"message,omitempty"`
}

// Memory finds what was said before in threads of the agent (RUN-08).
type Memory interface {
	// Search returns the nearest messages first. call is the id of the tool call under which the usage is counted.
	Search(ctx context.Context, call string, q MemoryQuery) ([]store.NearMessage, error)
}

// MemoryQuery says what to search for. Times are microseconds; 0 for no limit.
type MemoryQuery struct {
	Text         string
	Since, Until int64
	Limit        int
}

// MaxEffectDelay is the longest delay of an effect.
const MaxEffectDelay = 365 * 24 * time.Hour

// EffectDelay says what the delay of an effect may be. Every way to schedule one answers a wrong delay with it.
const EffectDelay = "the delay in milliseconds: a number from 0, which is now, to a year"

// Effects schedules effects of the thread (EFF-01). cause is derived from a call's id, so that a repeated call
// schedules the same effect.
type Effects interface {
	Schedule(ctx context.Context, cause, name string, args json.RawMessage, delay time.Duration) (id string, err error)
	List(ctx context.Context, name string) ([]ScheduledEffect, error)
	Remove(ctx context.Context, id string) (bool, error)
}

// ScheduledEffect is a pending effect (EFF-02).
type ScheduledEffect struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Args        json.RawMessage `json:"args"`
	ScheduledAt int64           `json:"scheduledAt"` // microseconds
	CreatedAt   int64           `json:"createdAt"`   // microseconds
}

// Children creates children of the thread and sends them messages (the SUB rows).
type Children interface {
	// Kinds returns the kinds of children that the agent lists and this thread may have.
	Kinds(ctx context.Context) ([]skeinv1.AgentSubagent, error)
	// Create starts a child of a kind.
	Create(ctx context.Context, req ChildRequest) (*skeinv1.ChildStatus, error)
	// Living returns how many living children there are, by their kind.
	Living(ctx context.Context) (map[string]int, error)
	// List returns the registry, oldest first.
	List(ctx context.Context) ([]skeinv1.ChildStatus, error)
	// Resumable returns those of them that go on after their result and have not ended.
	Resumable(ctx context.Context) ([]skeinv1.ChildStatus, error)
	// Message queues a message for a living child of the thread and returns the child's entry.
	Message(ctx context.Context, req ChildMessage) (*skeinv1.ChildStatus, error)
}

// ChildRequest asks for a child.
type ChildRequest struct {
	Cause       string // the tool call's id; a repeat returns the same child
	Kind        skeinv1.AgentSubagent
	Title       string
	Message     string
	Arguments   json.RawMessage
	Attachments []string // paths of the thread's files
}

// ChildMessage is a message to a child.
type ChildMessage struct {
	Cause       string // the tool call's id
	Reference   string
	Message     string
	Attachments []string // paths of the thread's files
}

// Family opens the other threads of the thread's tree: its ancestors, its descendants, and the descendants of its
// ancestors.
type Family interface {
	// Open returns a host for another thread of the tree, as that thread is now, for an execution outside of a run. The
	// thread may be terminated. It returns store.ErrNotFound when the tree has no such thread. Call done when the call
	// that needed the host is over.
	Open(ctx context.Context, threadID string) (h *Host, done func(context.Context) error, err error)
}

// Definitions reads the definitions of the thread's namespace (AGT-07).
type Definitions interface {
	Names(ctx context.Context, kind string) ([]string, error)
	Load(ctx context.Context, kind, name string) (json.RawMessage, error)
}

// Code runs code in the thread's sandbox.
type Code interface {
	// RunCode runs source in an isolate of its own. An error means that no sandbox was available. Failures within a
	// sandbox are in the Result.
	RunCode(ctx context.Context, req sandbox.CodeRequest) (sandbox.Result, error)
	// ServeRunCode handles state.runCode, called by definition code of this execution.
	ServeRunCode(ctx context.Context, args []any) (any, error)
	// ServeRunCodeFor is ServeRunCode for code of another execution, whose Code is caller. The source runs in this
	// thread's sandbox; the functions that it calls run where the caller is.
	ServeRunCodeFor(ctx context.Context, caller Code, args []any) (any, error)
	// Invoke runs a definition module in the isolate that the execution's definition code shares. invocation is the id
	// that the code's calls of state carry.
	Invoke(ctx context.Context, invocation, module string, args any, timeout time.Duration) (any, error)
}

// Caller calls tools on behalf of code (TOL-01).
type Caller interface {
	// InvokeTool calls a tool of the agent and returns its result. id is the id of the new call.
	InvokeTool(ctx context.Context, id, name string, args json.RawMessage) (Result, error)
	// QueueTool calls a tool in the running execution, or starts one. With the same key, a repeat has no effect.
	QueueTool(ctx context.Context, key, name string, args json.RawMessage) error
}

// Handoffs says whether the conversation may pass to another agent (AGT-03).
type Handoffs interface {
	// Allowed reports whether conversations of the thread may leave its agent at all.
	Allowed(ctx context.Context) (bool, error)
	// Check returns an error when a handoff to an agent is not possible. The error says what to do instead.
	Check(ctx context.Context, agent string) error
}

// Lifecycle changes the state of the thread within its tree.
type Lifecycle interface {
	// Terminate ends the thread and all its descendants softly (THR-05).
	Terminate(ctx context.Context) error
	// NotifyParent queues a silent message on the parent (SUB-05). It returns an error when there is no parent.
	NotifyParent(ctx context.Context, key, content string) error
	// SetStatus changes what the parent's registry shows (SUB-05).
	SetStatus(ctx context.Context, status string) error
}
