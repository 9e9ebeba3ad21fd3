package client

import (
	"context"
	"encoding/json"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// ThreadState is one thread and everything that can be done with it: the Go form of what tools, hooks and endpoints
// get as "state" in TypeScript (TOL-03). *Thread implements it over the runtime API.
//
// Times are microseconds since 1970 and sizes are bytes, unless a member says otherwise. Where there is simply
// nothing, methods return nil, empty or false, never an error. A missing thread, a missing definition, a bad
// parameter and a failing store are errors (THR-18), of the kinds that this package lists for errors.Is. Every call
// ends when its context ends. Implementations are safe for concurrent use, except for the map of Context.
type ThreadState interface {
	// Info returns the identity of the thread: id, agent, user, creation, arguments, resumable children, termination
	// (THR-02). It returns ErrNotFound when there is no such thread.
	Info(ctx context.Context) (*Info, error)

	// Messages returns a page: the newest 100, oldest first, when o is zero (MSG-02).
	Messages(ctx context.Context, o MessageOptions) (*runtimev1.MessageList, error)
	// Message returns one message, or nil when there is none (MSG-03).
	Message(ctx context.Context, id string) (*runtimev1.Message, error)
	// Inject appends a message and never starts execution (MSG-04).
	Inject(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error)
	// Queue adds a message to the queue, durably: a running thread sees it before its next model step, an idle one
	// starts (MSG-05). It returns ErrQueueFull when the maximum number of messages waits already, and ErrTerminated
	// for a terminated thread.
	Queue(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error)
	// Send queues a user's text.
	Send(ctx context.Context, content string) (*runtimev1.Message, error)

	// UpdateMessage merges metadata and replaces the other given fields (MSG-06). It returns ErrNotFound when there
	// is no message of that id.
	UpdateMessage(ctx context.Context, id string, u runtimev1.MessageUpdates) (*runtimev1.Message, error)
	// DeleteMessage removes a message with the results of its tool calls. It returns false when there is none of that
	// id.
	DeleteMessage(ctx context.Context, id string) (bool, error)
	// FileState is the thread's file system (FIL-01).
	FileState

	// LoadModel, LoadPrompt and LoadAgent return a definition of the namespace as JSON, without secrets (AGT-07).
	// They return ErrNotFound when there is none of that name.
	LoadModel(ctx context.Context, name string) (json.RawMessage, error)
	LoadPrompt(ctx context.Context, name string) (json.RawMessage, error)
	LoadAgent(ctx context.Context, name string) (json.RawMessage, error)
	// ModelNames, PromptNames and AgentNames return the names of what can be loaded, sorted.
	ModelNames(ctx context.Context) ([]string, error)
	PromptNames(ctx context.Context) ([]string, error)
	AgentNames(ctx context.Context) ([]string, error)

	// ChildThread returns a child by its reference in the registry, or nil when there is none (SUB-05).
	ChildThread(ctx context.Context, reference string) (ThreadState, error)
	// ParentThread returns the parent of this thread, or nil when it has none (SUB-05).
	ParentThread(ctx context.Context) (ThreadState, error)
	// NotifyParent queues a silent message with metadata.subagent_id on the parent (SUB-05). It returns ErrInvalid
	// without a parent.
	NotifyParent(ctx context.Context, content string) error
	// SetStatus sets the thread's status in its parent's registry (SUB-05). It returns ErrInvalid without a parent.
	SetStatus(ctx context.Context, status string) error

	// Env returns the value of a variable from the first source that has it: thread, user, instance, agent, prompt
	// (ENV-01). It returns ErrEnvUnknown when no source has it, and ErrEnvSecret for a secret, because no client gets
	// those.
	Env(ctx context.Context, name string) (string, error)
	// EnvType returns whether a variable is a "text" or a "secret"; an unknown variable counts as a secret (ENV-02).
	EnvType(ctx context.Context, name string) (string, error)
	// SetEnv sets a variable of the thread and of its active descendants (ENV-04). kind is "text" or "secret". When
	// kind is empty, the variable keeps its type, and a new one is a secret.
	SetEnv(ctx context.Context, name, value, kind string) error

	// QueueTool adds a tool call to the current execution, or starts one (TOL-01). It returns ErrNotFound when the
	// agent has no such tool.
	QueueTool(ctx context.Context, name string, args any) error
	// InvokeTool calls a tool and waits for its result, which also says whether the tool failed (TOL-01).
	InvokeTool(ctx context.Context, name string, args any) (*runtimev1.ToolResult, error)

	// ScheduleEffect schedules an effect, named by its plain name or as package/effect, and returns its id, a UUID
	// (EFF-01). Without a delay it is due now. args must encode as a JSON object; nil means {}.
	ScheduleEffect(ctx context.Context, name string, args any, delay time.Duration) (id string, err error)
	// ScheduledEffects returns the pending effects of a name, or all of them when name is empty (EFF-02).
	ScheduledEffects(ctx context.Context, name string) ([]runtimev1.Effect, error)
	// RemoveScheduledEffect cancels a pending effect. It returns false when there is none of that id.
	RemoveScheduledEffect(ctx context.Context, id string) (bool, error)

	// Emit sends an event to every client that follows the thread (EVT-01). data must encode as JSON.
	Emit(ctx context.Context, event string, data any) error

	// Context returns scratch space of this value: the same map each time, stored nowhere (STA-08). Protect it when
	// several goroutines use it.
	Context() map[string]any

	// Value returns a value of the durable key-value store, or nil when there is none (KVS-01).
	Value(ctx context.Context, key string) (json.RawMessage, error)
	// SetValue stores a value that encodes as JSON under a key. nil removes it.
	SetValue(ctx context.Context, key string, value any) error

	// RunCode runs the source of an ES module in a fresh isolate in the thread's sandbox (COD-01). It returns the
	// handle at once.
	RunCode(ctx context.Context, source string, o CodeOptions) *CodeExecution

	// Execution returns the current run, or nil when the thread rests (RUN-03).
	Execution(ctx context.Context) (*Execution, error)
	// Terminate ends the thread and its descendants for good. They can still be read (THR-05). Repeating it is no
	// error.
	Terminate(ctx context.Context) error

	// NotPackableRuntimeContext returns what the platform team configured for code that runs inside Skein. It is nil
	// for a client, which has its own environment (TOL-04).
	NotPackableRuntimeContext() map[string]any
}

var _ ThreadState = (*Thread)(nil)

// Context implements ThreadState. It returns scratch space of this handle.
func (t *Thread) Context() map[string]any { return t.scratch }

// NotPackableRuntimeContext implements ThreadState. It always returns nil.
func (t *Thread) NotPackableRuntimeContext() map[string]any { return nil }
