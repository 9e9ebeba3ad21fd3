package client

import (
	"context"
	"encoding/json"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// ThreadState is one thread and all that can be done with it: what tools, hooks and endpoints get as "state" in
// TypeScript (TOL-03), in Go's idiom. *Thread implements it over the runtime API.
//
// Times are microseconds since 1970 and sizes bytes, unless a member says otherwise. What is simply not there is nil,
// empty or false, never an error; a missing thread, a missing definition, a bad parameter and a failing store are
// errors (THR-18), of the kinds that this package lists for errors.Is. Every call takes a context, whose end
// ends the call. Implementations are safe for concurrent use, but for the map of Context.
type ThreadState interface {
	// Info gives the identity of the thread: id, agent, user, creation, arguments, resumable children, termination
	// (THR-02). ErrNotFound when there is no such thread.
	Info(ctx context.Context) (*Info, error)

	// Messages gives a page: the newest 100 when o is zero, oldest first (MSG-02).
	Messages(ctx context.Context, o MessageOptions) (*runtimev1.MessageList, error)
	// Message gives one message; nil when there is none (MSG-03).
	Message(ctx context.Context, id string) (*runtimev1.Message, error)
	// Inject appends a message and never starts execution (MSG-04).
	Inject(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error)
	// Queue puts a message into the queue, durably: a running thread sees it before its next model step, an idle one
	// starts (MSG-05). ErrQueueFull when as many wait as are allowed, ErrTerminated.
	Queue(ctx context.Context, m runtimev1.NewMessage) (*runtimev1.Message, error)
	// Send is Queue for a user's text.
	Send(ctx context.Context, content string) (*runtimev1.Message, error)

	// UpdateMessage merges metadata and replaces the other fields given (MSG-06). ErrNotFound when there is none of
	// that id.
	UpdateMessage(ctx context.Context, id string, u runtimev1.MessageUpdates) (*runtimev1.Message, error)
	// DeleteMessage removes a message, with the results of its tool calls; false when there is none of that id.
	DeleteMessage(ctx context.Context, id string) (bool, error)
	// FileState is the thread's file system (FIL-01).
	FileState

	// LoadModel, LoadPrompt and LoadAgent give a definition of the namespace as JSON, without secrets; ErrNotFound
	// when there is none of that name (AGT-07).
	LoadModel(ctx context.Context, name string) (json.RawMessage, error)
	LoadPrompt(ctx context.Context, name string) (json.RawMessage, error)
	LoadAgent(ctx context.Context, name string) (json.RawMessage, error)
	// ModelNames, PromptNames and AgentNames list what can be loaded, sorted.
	ModelNames(ctx context.Context) ([]string, error)
	PromptNames(ctx context.Context) ([]string, error)
	AgentNames(ctx context.Context) ([]string, error)

	// ChildThread gives a child by its reference in the registry; nil when there is none (SUB-05).
	ChildThread(ctx context.Context, reference string) (ThreadState, error)
	// ParentThread gives the thread that this one is a child of; nil when it has no parent (SUB-05).
	ParentThread(ctx context.Context) (ThreadState, error)
	// NotifyParent queues a silent message with metadata.subagent_id on the parent (SUB-05). ErrInvalid without
	// a parent.
	NotifyParent(ctx context.Context, content string) error
	// SetStatus changes what the parent's registry shows of the thread (SUB-05). ErrInvalid without a parent.
	SetStatus(ctx context.Context, status string) error

	// Env gives the value of a variable from the first source that has it: thread, user, instance, agent, prompt
	// (ENV-01). ErrEnvUnknown when none has, ErrEnvSecret for a secret, which no client is shown.
	Env(ctx context.Context, name string) (string, error)
	// EnvType tells whether a variable is a "text" or a "secret"; secret when it is not known (ENV-02).
	EnvType(ctx context.Context, name string) (string, error)
	// SetEnv sets a variable of the thread and of its active descendants (ENV-04). kind is "text" or "secret";
	// when empty, the variable keeps the one that it has, and a new one is a secret.
	SetEnv(ctx context.Context, name, value, kind string) error

	// QueueTool adds a tool call to the execution under way, or starts one (TOL-01). ErrNotFound when the agent
	// has no such tool.
	QueueTool(ctx context.Context, name string, args any) error
	// InvokeTool calls a tool and waits for its result, which tells too whether it failed (TOL-01).
	InvokeTool(ctx context.Context, name string, args any) (*runtimev1.ToolResult, error)

	// ScheduleEffect schedules an effect, by its plain name or as package/effect, and gives its id, a UUID; no delay
	// is now (EFF-01). args is what encodes as a JSON object, nil for {}.
	ScheduleEffect(ctx context.Context, name string, args any, delay time.Duration) (id string, err error)
	// ScheduledEffects lists the pending effects, all of them when name is empty (EFF-02).
	ScheduledEffects(ctx context.Context, name string) ([]runtimev1.Effect, error)
	// RemoveScheduledEffect cancels a pending effect; false when there is none of that id.
	RemoveScheduledEffect(ctx context.Context, id string) (bool, error)

	// Emit sends an event to every client that follows the thread; data is what encodes as JSON (EVT-01).
	Emit(ctx context.Context, event string, data any) error

	// Context is scratch space of this value: the same map each time, kept nowhere (STA-08). Guard it when
	// several goroutines use it.
	Context() map[string]any

	// Value gives a value of the durable key-value store; nil when missing (KVS-01).
	Value(ctx context.Context, key string) (json.RawMessage, error)
	// SetValue keeps what encodes as JSON under a key; nil removes it.
	SetValue(ctx context.Context, key string, value any) error

	// RunCode runs the source of an ES module in a fresh isolate in the thread's sandbox (COD-01) and gives its
	// handle at once.
	RunCode(ctx context.Context, source string, o CodeOptions) *CodeExecution

	// Execution gives the run under way; nil at rest (RUN-03).
	Execution(ctx context.Context) (*Execution, error)
	// Terminate ends the thread and its descendants for good; they can still be read (THR-05). Again is no error.
	Terminate(ctx context.Context) error

	// NotPackableRuntimeContext gives what the platform team configured for code that runs inside Skein; nil for a
	// client, which has its own surroundings (TOL-04).
	NotPackableRuntimeContext() map[string]any
}

var _ ThreadState = (*Thread)(nil)

// Context implements ThreadState: scratch space of this handle.
func (t *Thread) Context() map[string]any { return t.scratch }

// NotPackableRuntimeContext implements ThreadState: always nil.
func (t *Thread) NotPackableRuntimeContext() map[string]any { return nil }
