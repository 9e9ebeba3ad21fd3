// Package ports has the interfaces through which the engine uses everything around it. internal/kube implements them with custom
// resources and pods. Tests of the engine implement them in memory.
package ports

import (
	"context"
	"encoding/json"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Definitions resolves the definitions that a run uses. Every lookup reads a cache and is cheap. A missing or unready
// object is a *definition.NotReadyError that says which object it is and what to do.
type Definitions interface {
	// Agent resolves an agent with its prompt, model and tools.
	Agent(ctx context.Context, namespace, name string) (*definition.Agent, error)
	// PromptText returns the current text of a prompt, with the prompts that it includes.
	PromptText(ctx context.Context, namespace, name string) (*prompt.Template, error)
	// Hooks resolves only the hooks of an agent, as they apply while no side has the turn: for each name the hook of side a,
	// else that of side b. A hook of a side's prompt replaces the agent's own. Hooks returns nil if there are none.
	Hooks(ctx context.Context, namespace, agent string) (map[skeinv1.HookName]*definition.Hook, error)
	// Effect resolves an effect by its plain or qualified name.
	Effect(ctx context.Context, namespace, name string) (*definition.Effect, error)
	// Tool resolves a Tool object by its name.
	Tool(ctx context.Context, namespace, name string) (*definition.Tool, error)
	// EffectEnv resolves the variables of an effect that runs without a thread.
	EffectEnv(ctx context.Context, namespace string, env []skeinv1.EnvVar) ([]thread.SpecEnv, error)
	// Endpoint returns the ThreadEndpoint that answers a request to a thread (END-01). The error is a *definition.UnknownError
	// if no path matches, and a *definition.MethodError if one matches with other methods only.
	Endpoint(ctx context.Context, q definition.EndpointQuery) (*definition.Endpoint, error)
	// Rules returns what a Thread object and its agent set for the thread's runs. Objects that do not exist set nothing.
	Rules(ctx context.Context, namespace, thread, agent string) (definition.Rules, error)
	// RuntimeContext returns what the platform team configured for code in the sandboxes of a pool, or nil (TOL-04).
	RuntimeContext(ctx context.Context, namespace, pool string) (map[string]any, error)
	// CalledAgent returns the agent that is exposed as a tool under that name, or nil if there is none (AGT-03).
	CalledAgent(ctx context.Context, namespace, tool string) (*definition.CalledAgent, error)
	// HandoffPolicy returns the handoff policy of the Thread object, or "" if it sets none.
	HandoffPolicy(ctx context.Context, namespace, thread string) (skeinv1.HandoffPolicy, error)
	// Names lists definitions of a kind: "agent", "prompt" or "model" (AGT-07).
	Names(ctx context.Context, namespace, kind string) ([]string, error)
	// Load returns a definition of a kind as plain JSON, without secrets (AGT-07). An unknown name is an error.
	Load(ctx context.Context, namespace, kind, name string) (json.RawMessage, error)
}

// NoSandboxError says why a thread cannot have a sandbox at present, and what to do. None of the code has run.
type NoSandboxError struct {
	Message string
	Err     error // may be nil
}

// Error implements error.
func (e *NoSandboxError) Error() string { return e.Message }

// Unwrap returns the cause, or nil.
func (e *NoSandboxError) Unwrap() error { return e.Err }

// Children creates child threads and lists them.
type Children interface {
	// Create declares a child under a name that derives from the cause, so that a repeat returns the same child.
	// A child over one of the limits is a *store.ChildLimitError, and is not declared.
	Create(ctx context.Context, parent *store.Thread, req ChildRequest) (*skeinv1.ChildStatus, error)
	// List returns the children in a thread's registry, oldest first.
	List(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error)
	// Resumable returns those of them that go on after their result and have not ended. Its cost does not grow with the
	// number of the others.
	Resumable(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error)
	// Exists reports whether a child is declared, not being deleted, and has not ended. It does not trust a cache.
	Exists(ctx context.Context, parent *store.Thread, reference string) (bool, error)
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
	Limits      []store.ChildLimit
}

// EffectQuotaError says which quota of ScheduledEffects is used up, and what to do.
type EffectQuotaError struct{ Message string }

// Error implements error.
func (e *EffectQuotaError) Error() string { return e.Message }

// ThreadObjects declares the Thread objects of threads that the engine starts (REL-03).
type ThreadObjects interface {
	// Name returns the name of the Thread object that a cause within a thread leads to.
	Name(origin *store.Thread, cause string) string
	// Declare creates the object of a stored thread, which then adopts it. A repeat changes nothing. The error is a
	// *thread.InvalidError when the cluster refuses the object, so that no repeat would help.
	Declare(ctx context.Context, t *store.Thread, cause string) error
}

// Effects schedules effects (EFF-01).
type Effects interface {
	// Schedule declares an effect under a name that derives from the cause, and returns its id. Within a week a repeat with the same cause and
	// name schedules nothing, and returns the same id, also when the effect has ended or was removed.
	Schedule(ctx context.Context, thread *store.Thread, req EffectRequest) (id string, err error)
	// List returns the pending effects of a thread: those with the name, or all if the name is "".
	List(ctx context.Context, thread *store.Thread, name string) ([]ScheduledEffect, error)
	// Remove cancels a pending effect. It returns false if there is none with that id.
	Remove(ctx context.Context, thread *store.Thread, id string) (bool, error)
	// ID returns the id of the ScheduledEffect object with a name. The error is a *definition.UnknownError if there is none.
	ID(ctx context.Context, namespace, name string) (string, error)
}

// EffectPage selects a page of the pending effects of a thread.
type EffectPage struct {
	Name          string // all when empty
	Limit, Offset int
	// MaxBytes ends the page early, after at least one effect, once its arguments have so many bytes.
	MaxBytes int64
}

// EffectRequest asks for an effect.
type EffectRequest struct {
	Cause string
	Name  string
	Args  json.RawMessage
	Delay time.Duration
	// HookDepth is the number of hooks in the chain of causes that led to the effect. The firing carries it.
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

// Sandboxes provides each thread with its sandbox.
type Sandboxes interface {
	// Acquire returns the thread's sandbox, and claims one from the pool if the thread has none. Call release when nothing
	// of the caller runs in it any more. The sandbox stays the thread's until it was idle for too long.
	Acquire(ctx context.Context, thread *store.Thread, pool string) (sbx sandbox.Sandbox, release func(), err error)
	// Discard gives up the thread's sandbox after a failure. The next Acquire claims another.
	Discard(ctx context.Context, thread *store.Thread, sbx sandbox.Sandbox)
}
