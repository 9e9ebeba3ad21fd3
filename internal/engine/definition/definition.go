// Package definition has the types of resolved definitions: an agent with its sides, prompts, models, tools, hooks and handlers, all
// references followed and all code compiled. Package engine runs threads by them, internal/kube resolves them from custom
// resources, and tests make them in memory. The package reads and writes nothing.
package definition

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/skill"
)

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
	// Memory is the model that turns messages into vectors (RUN-08); nil for none.
	Memory *Model
	// Titles is the model that writes titles (RUN-07); nil for none.
	Titles *Model
}

// CalledPrompt is a prompt as a tool (AGT-05): what a side with it would be, or why it cannot be called now.
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
	// Handler is set where the side is code (AGT-09): it has neither prompt nor model nor tools then.
	Handler *Handler
}

// Handler is a side that is written in code, compiled.
type Handler struct {
	Module  sandbox.Module
	Timeout time.Duration // of one call; 0 = the sandbox's own
	// Models that the code may ask, by the names that it has for them.
	Models map[string]*Model
}

// CalledAgent is an agent as a tool (AGT-03, AGT-04).
type CalledAgent struct {
	ObjectName  string
	Name        string // as the model calls it
	Description string
	// Ask: it gets a thread of its own; else the conversation passes to it.
	Ask bool
	// Arguments is the JSON Schema of the arguments that its threads need; nil for any.
	Arguments json.RawMessage
}

// Hook is code that is called at a moment in the life of a thread (HOK-01), compiled.
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
	// Skills of the spec, in its order, with their texts (AGT-08).
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
