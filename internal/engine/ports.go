package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/skill"
)

// The ports are what the engine needs of the world around it. internal/kube keeps them by custom
// resources and pods; tests of the engine keep them in memory.

// Definitions resolves what a run is made of. Every lookup reads a cache and is cheap. A missing or
// unready object is an error that says which one and what to do; it implements NotReady.
type Definitions interface {
	// Agent resolves an agent with its prompt, model and tools.
	Agent(ctx context.Context, namespace, name string) (*Agent, error)
	// PromptText puts the text of a prompt together as its definitions are now.
	PromptText(ctx context.Context, namespace, name string) (*prompt.Template, error)
	// Hooks resolves the hooks of an agent alone, as they hold where no side has the turn: those of side a's prompt, else
	// of side b's, in the place of its own; nil when it has none.
	Hooks(ctx context.Context, namespace, agent string) (map[skeinv1.HookName]*Hook, error)
	// Effect resolves an effect by its plain or qualified name.
	Effect(ctx context.Context, namespace, name string) (*Effect, error)
	// Endpoint finds the ThreadEndpoint that answers a request to threads of an agent; path is in segments (SPEC
	// END-01). An *UnknownError when no path matches, a *MethodError when one does with other methods only.
	Endpoint(ctx context.Context, namespace, agent, method string, path []string) (*Endpoint, error)
	// Rules gives what a Thread object and its agent say of the thread's runs. Objects that do not exist say nothing.
	Rules(ctx context.Context, namespace, thread, agent string) (Rules, error)
	// RuntimeContext gives what the platform team configured for code in the sandboxes of a pool; nil for nothing
	// (SPEC TOL-04).
	RuntimeContext(ctx context.Context, namespace, pool string) (map[string]any, error)
	// CalledAgent finds the agent that is to be called as a tool by that name; nil when there is none (SPEC AGT-03).
	CalledAgent(ctx context.Context, namespace, tool string) (*CalledAgent, error)
	// HandoffPolicy gives that of the Thread object; "" when it has none.
	HandoffPolicy(ctx context.Context, namespace, thread string) (skeinv1.HandoffPolicy, error)
	// Names lists definitions of a kind: "agent", "prompt" or "model" (SPEC AGT-07).
	Names(ctx context.Context, namespace, kind string) ([]string, error)
	// Load gives a definition of a kind as plain JSON, without secrets (SPEC AGT-07). An unknown name is an error.
	Load(ctx context.Context, namespace, kind, name string) (json.RawMessage, error)
}

// Rules of a thread's runs.
type Rules struct {
	// Policy of the thread, else of its agent; empty when neither says one.
	Policy skeinv1.RunPolicy
	// Limits of the thread and of its agent.
	Limits []skeinv1.RunLimits
}

// Agent is an agent with all that it refers to, resolved.
type Agent struct {
	Namespace string
	Name      string
	// Spec of the object; what it says of the sides is in A and B.
	Spec skeinv1.AgentSpec
	// A and B are the sides that models play; B is nil where it is a person (ai_human).
	A, B *Side
	// Prompts that the sides call as tools, and those that these call, by the names of their objects.
	Prompts map[string]*CalledPrompt
	// Memory is the model that turns messages into vectors (SPEC RUN-08); nil for none.
	Memory *Model
	// Titles is the model that writes titles (SPEC RUN-07); nil for none.
	Titles *Model
}

// CalledPrompt is a prompt as a tool (SPEC AGT-05): what a side with it would be, or why it cannot be called now.
type CalledPrompt struct {
	Side *Side
	Err  error
}

// Side is one side of an agent with all that it refers to, resolved.
type Side struct {
	Name   string // sideA or sideB
	Spec   skeinv1.AgentSide
	Prompt Prompt
	Model  Model
	Tools  []Tool // the prompt's Tool objects, in its order
	// Agents that the prompt may call as tools, in its order.
	Agents []CalledAgent
	// Hooks by their names, those of the prompt in the place of the agent's; nil when there are none.
	Hooks map[skeinv1.HookName]*Hook
	// Handler is set where the side is code (SPEC AGT-09): it has neither prompt nor model nor tools then.
	Handler *Handler
}

// Handler is a side that is written in code, compiled.
type Handler struct {
	Module  sandbox.Module
	Timeout time.Duration // of one call; 0 = the sandbox's own
	// Models that the code may ask, by the names that it has for them.
	Models map[string]*Model
}

// CalledAgent is an agent as a tool (SPEC AGT-03, AGT-04).
type CalledAgent struct {
	ObjectName  string
	Name        string // as the model calls it
	Description string
	// Ask: it gets a thread of its own; else the conversation passes to it.
	Ask bool
	// Arguments is the JSON Schema of the arguments that its threads need; nil for any.
	Arguments json.RawMessage
}

// Hook is code that is called at a moment in the life of a thread (SPEC HOK-01), compiled.
type Hook struct {
	Name    skeinv1.HookName
	Owner   string // kind and name of the object that has it
	Timeout time.Duration
	Module  sandbox.Module
}

// Prompt of an agent's side.
type Prompt struct {
	Name string
	Spec skeinv1.PromptSpec
	// Text of the spec, with all that it includes.
	Text *prompt.Template
	// Skills of the spec, in its order, with their texts (SPEC AGT-08).
	Skills []skill.Skill
}

// Model of a prompt. APIKey is a secret: it goes to the provider and nowhere else.
type Model struct {
	Name   string
	Spec   skeinv1.ModelSpec
	Steps  []skeinv1.ScriptStep // of a scripted model, a ConfigMap's included
	APIKey string
	// Version changes whenever anything above does, so that clients may be cached by it.
	Version string
	// Fallbacks are asked in this order when the model fails; they have none of their own.
	Fallbacks []Model
}

// Config is what the model's client is made of.
func (m *Model) Config(namespace string) model.Config {
	c := model.Config{Namespace: namespace, Name: m.Name, Spec: m.Spec, Steps: m.Steps, APIKey: m.APIKey, Version: m.Version}
	for i := range m.Fallbacks {
		c.Fallbacks = append(c.Fallbacks, m.Fallbacks[i].Config(namespace))
	}
	return c
}

// Tool is a Tool object, compiled.
type Tool struct {
	ObjectName string
	Name       string // as the model calls it
	Spec       skeinv1.ToolSpec
	Module     sandbox.Module
	Digest     string            // of the code
	HTTP       *httptool.Request // with its secrets; nil unless the tool is a request
	MCP        *mcptool.Server   // with its secrets; nil unless it stands for the tools of a server
}

// Effect is an Effect object, compiled.
type Effect struct {
	ObjectName string
	Spec       skeinv1.EffectSpec
	Module     sandbox.Module
	Digest     string
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

// Endpoint is a ThreadEndpoint object, compiled, as a request has found it.
type Endpoint struct {
	ObjectName string
	Spec       skeinv1.ThreadEndpointSpec
	Module     sandbox.Module
	Digest     string
	Params     map[string]string // what the path gives
}

// MethodError says that a path has endpoints, but none for the method.
type MethodError struct {
	Method string
	Allow  []string // what can be asked, sorted
}

// Error implements error.
func (e *MethodError) Error() string {
	return fmt.Sprintf("there is no endpoint for %s at this path: it answers %s", e.Method, strings.Join(e.Allow, ", "))
}

// NotReadyError says that a definition is missing or not usable yet. It heals by itself.
type NotReadyError struct {
	Reason  string // of api/v1alpha1/conditions.go
	Message string
}

// Error implements error.
func (e *NotReadyError) Error() string { return e.Message }

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

// Effects schedules effects (SPEC EFF-01).
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

// ScheduledEffect is the record of a pending effect (SPEC EFF-02).
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
