// Package definition has the types of resolved definitions: an agent with its sides, prompts, models, tools, hooks and handlers, all
// references followed and all code compiled. Package engine runs threads by them, internal/kube/definitions resolves them from custom
// resources, and tests make them in memory. The package reads and writes nothing.
package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/skill"
)

// Rules are what a Thread and its agent set for the thread's runs.
type Rules struct {
	// Policy of the thread, otherwise of its agent. It is empty if neither sets one.
	Policy skeinv1.RunPolicy
	// Limits of the thread and of its agent.
	Limits []skeinv1.RunLimits
}

// Agent is an agent with everything that it refers to, resolved.
type Agent struct {
	Namespace string
	Name      string
	// Spec of the object. What it says about the sides is resolved in A and B.
	Spec skeinv1.AgentSpec
	// A and B are the sides that models or code play. B is nil if that side is a person (ai_human).
	A, B *Side
	// Prompts has the prompts that the sides call as tools, and those that these call in turn, by the names of their objects.
	Prompts map[string]*CalledPrompt
	// Memory is the model that embeds messages (RUN-08). It is nil if the agent has no memory.
	Memory *Model
	// Titles is the model that writes titles (RUN-07). It is nil if threads get no titles.
	Titles *Model
}

// CalledPrompt is a prompt as a tool (AGT-05): a side that has the prompt, or the reason why it cannot be called now.
type CalledPrompt struct {
	Side *Side
	Err  error
}

// Side is one side of an agent with everything that it refers to, resolved.
type Side struct {
	Name   string // sideA or sideB
	Spec   skeinv1.AgentSide
	Prompt Prompt
	Model  Model
	// Compactor is the model that sums up older messages (MSG-12). It is nil when Model does, and when CompactorErr says why
	// it cannot be used.
	Compactor    *Model
	CompactorErr error
	Tools        []Tool // the prompt's Tool objects, in its order
	// Agents that the prompt may call as tools, in its order.
	Agents []CalledAgent
	// Hooks by their names. A hook of the prompt replaces the agent's. Hooks is nil if there are none.
	Hooks map[skeinv1.HookName]*Hook
	// Handler is set if the side is code (AGT-09). Such a side has no prompt, no model and no tools.
	Handler *Handler
}

// Handler is a side that is written in code, compiled.
type Handler struct {
	Module  sandbox.Module
	Timeout time.Duration // of one call; 0 for the sandbox's own
	// Models that the code may call, by the names that the code uses.
	Models map[string]*Model
}

// CalledAgent is an agent as a tool (AGT-03, AGT-04).
type CalledAgent struct {
	ObjectName  string
	Name        string // as the model calls it
	Description string
	// Ask reports how the agent is called: true gives it a thread of its own, false hands the conversation over to it.
	Ask bool
	// Arguments is the JSON Schema of the arguments of its threads. nil accepts any.
	Arguments json.RawMessage
	// TTLAfterFinished and Retain say what becomes of the thread of an agent that was asked.
	TTLAfterFinished *metav1.Duration
	Retain           skeinv1.ChildRetention
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
	// Text of the spec, with the prompts that it includes. It is nil for a side that is code.
	Text *prompt.Template
	// Skills of the spec, in its order, with their texts (AGT-08).
	Skills []skill.Skill
}

// Model of a prompt. APIKey is a secret: it goes to the provider and nowhere else.
type Model struct {
	Name   string
	Spec   skeinv1.ModelSpec
	Steps  []skeinv1.ScriptStep // of a scripted model, with those from a ConfigMap
	APIKey string
	// Version changes whenever a field above changes, so that clients can be cached by it.
	Version string
	// Fallbacks are called in this order if the model fails. They have no fallbacks of their own.
	Fallbacks []Model
}

// Config returns the configuration of the model's client.
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
	HTTP       *httptool.Request // with its secrets; nil unless the tool makes an HTTP request
	MCP        *mcptool.Server   // with its secrets; nil unless it stands for the tools of an MCP server
}

// Effect is an Effect object, compiled.
type Effect struct {
	ObjectName string
	Spec       skeinv1.EffectSpec
	Module     sandbox.Module
	Digest     string
}

// Endpoint is a ThreadEndpoint object, compiled, that matches a request.
type Endpoint struct {
	ObjectName string
	Spec       skeinv1.ThreadEndpointSpec
	Module     sandbox.Module
	Digest     string
	Params     map[string]string // the parameters in the path
}

// EndpointQuery describes a request for which a ThreadEndpoint is to be found.
type EndpointQuery struct {
	Namespace, Agent string // of the thread
	Method           string
	Path             []string // its segments
	// Only are the names of the ThreadEndpoints that count. nil: all of the namespace.
	Only []string
}

// IDCode is the code of a ThreadGateway that says which conversation a request means, compiled (IDS-06).
type IDCode struct {
	Namespace, Gateway, UID string
	Pool                    string // the SandboxPool that it runs in
	Module                  sandbox.Module
	Timeout                 time.Duration
}

// ErrRefusedUser reports that the code of a ThreadGateway refuses a request, because its user must log in first.
var ErrRefusedUser = errors.New("the code of the gateway refuses the request")

// MethodError reports that a path has endpoints, but none for the method.
type MethodError struct {
	Method string
	Allow  []string // the methods that the path has, sorted
}

// Error implements error.
func (e *MethodError) Error() string {
	return fmt.Sprintf("there is no endpoint for %s at this path: it answers %s", e.Method, strings.Join(e.Allow, ", "))
}

// NotReadyError reports that a definition is missing or not yet usable. It is temporary: the same lookup succeeds once the
// definition is ready.
type NotReadyError struct {
	Reason  string // of api/v1alpha1/conditions.go
	Message string
}

// Error implements error.
func (e *NotReadyError) Error() string { return e.Message }
