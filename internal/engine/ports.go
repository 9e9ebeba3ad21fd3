package engine

import (
	"context"
	"encoding/json"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// The ports are what the engine needs of the world around it. internal/kube keeps them by custom
// resources and pods; tests of the engine keep them in memory.

// Definitions resolves what a run is made of. Every lookup reads a cache and is cheap. A missing or
// unready object is an error that says which one and what to do; it implements NotReady.
type Definitions interface {
	// Agent resolves an agent with its prompt, model and tools.
	Agent(ctx context.Context, namespace, name string) (*definition.Agent, error)
	// PromptText puts the text of a prompt together as its definitions are now.
	PromptText(ctx context.Context, namespace, name string) (*prompt.Template, error)
	// Hooks resolves the hooks of an agent alone, as they hold where no side has the turn: those of side a's prompt, else
	// of side b's, in the place of its own; nil when it has none.
	Hooks(ctx context.Context, namespace, agent string) (map[skeinv1.HookName]*definition.Hook, error)
	// Effect resolves an effect by its plain or qualified name.
	Effect(ctx context.Context, namespace, name string) (*definition.Effect, error)
	// Endpoint finds the ThreadEndpoint that answers a request to threads of an agent; path is in segments (SPEC
	// END-01). An *UnknownError when no path matches, a *MethodError when one does with other methods only.
	Endpoint(ctx context.Context, namespace, agent, method string, path []string) (*definition.Endpoint, error)
	// Rules gives what a Thread object and its agent say of the thread's runs. Objects that do not exist say nothing.
	Rules(ctx context.Context, namespace, thread, agent string) (definition.Rules, error)
	// RuntimeContext gives what the platform team configured for code in the sandboxes of a pool; nil for nothing
	// (TOL-04).
	RuntimeContext(ctx context.Context, namespace, pool string) (map[string]any, error)
	// CalledAgent finds the agent that is to be called as a tool by that name; nil when there is none (AGT-03).
	CalledAgent(ctx context.Context, namespace, tool string) (*definition.CalledAgent, error)
	// HandoffPolicy gives that of the Thread object; "" when it has none.
	HandoffPolicy(ctx context.Context, namespace, thread string) (skeinv1.HandoffPolicy, error)
	// Names lists definitions of a kind: "agent", "prompt" or "model" (AGT-07).
	Names(ctx context.Context, namespace, kind string) ([]string, error)
	// Load gives a definition of a kind as plain JSON, without secrets (AGT-07). An unknown name is an error.
	Load(ctx context.Context, namespace, kind, name string) (json.RawMessage, error)
}

// NoSandboxError says why a thread can have no sandbox at present, and what to do. Nothing of the code has run.
type NoSandboxError struct {
	Message string
	Err     error // may be nil
}

// Error implements error.
func (e *NoSandboxError) Error() string { return e.Message }

// Unwrap gives the cause.
func (e *NoSandboxError) Unwrap() error { return e.Err }

// Children makes and supervises child threads (SPEC SUB).
type Children interface {
	// Create declares a child under a name derived from the cause, so that a repeat gives the same child.
	Create(ctx context.Context, parent *store.Thread, req ChildRequest) (*skeinv1.ChildStatus, error)
	// List gives the registry of a thread, oldest first.
	List(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error)
}

// ChildRequest asks for a child.
type ChildRequest struct {
	Cause       string // the tool call id
	RunID       string
	Subagent    skeinv1.AgentSubagent
	Title       string
	Message     string
	Arguments   json.RawMessage
	Attachments []string
}

// Effects schedules effects (EFF-01).
type Effects interface {
	// Schedule declares an effect under a name derived from the cause and gives its id.
	Schedule(ctx context.Context, thread *store.Thread, req EffectRequest) (id string, err error)
	// List gives the pending effects of a thread, all or those of one name.
	List(ctx context.Context, thread *store.Thread, name string) ([]ScheduledEffect, error)
	// Remove cancels a pending effect; false when there is none of that id.
	Remove(ctx context.Context, thread *store.Thread, id string) (bool, error)
}

// EffectRequest asks for an effect.
type EffectRequest struct {
	Cause string
	Name  string
	Args  json.RawMessage
	Delay time.Duration
	// HookDepth is how many hooks, one caused by the other, led to it. It goes with the firing.
	HookDepth int
}

// ScheduledEffect is the record of a pending effect (EFF-02).
type ScheduledEffect struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Args        json.RawMessage `json:"args"`
	ScheduledAt int64           `json:"scheduledAt"` // microseconds
	CreatedAt   int64           `json:"createdAt"`   // microseconds
}

// Sandboxes gives each thread its sandbox.
type Sandboxes interface {
	// Acquire gives the thread's sandbox, claiming one from the pool when it has none. Call release when
	// nothing of the caller's runs in it any more; it stays the thread's until it idles out.
	Acquire(ctx context.Context, thread *store.Thread, pool string) (sbx sandbox.Sandbox, release func(), err error)
	// Discard gives up the thread's sandbox after it failed; the next Acquire claims another.
	Discard(ctx context.Context, thread *store.Thread, sbx sandbox.Sandbox)
}
