package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/skill"
)

// Definitions implements ports.Definitions in memory. It is safe for concurrent use.
type Definitions struct {
	mu       sync.Mutex
	version  int
	agents   map[string]*definition.Agent
	prompts  map[string]*skeinv1.PromptSpec // that agents' prompts include
	effects  map[string]*definition.Effect
	tools    map[string]definition.Tool
	platform map[string]any // what RuntimeContext returns
	policy   skeinv1.HandoffPolicy
	// endpoints by method and path, such as "GET /report".
	endpoints map[string]*definition.Endpoint
}

// NewDefinitions returns an empty set of definitions.
func NewDefinitions() *Definitions {
	return &Definitions{agents: map[string]*definition.Agent{}, prompts: map[string]*skeinv1.PromptSpec{}, effects: map[string]*definition.Effect{}, endpoints: map[string]*definition.Endpoint{}}
}

// Agent implements ports.Definitions.
func (d *Definitions) Agent(ctx context.Context, namespace, name string) (*definition.Agent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.agents[name]; a != nil && namespace == Namespace {
		out := *a
		for _, s := range []**definition.Side{&out.A, &out.B} {
			if *s == nil {
				continue
			}
			side := **s
			text, err := prompt.Build(ctx, side.Prompt.Name, &side.Prompt.Spec, included{d})
			if err != nil {
				return nil, err
			}
			side.Prompt.Text = text
			*s = &side
		}
		return &out, nil
	}
	return nil, &definition.NotReadyError{Reason: skeinv1.ReasonReferenceNotFound, Message: fmt.Sprintf("Agent %q does not exist: create it", name)}
}

// Hooks implements ports.Definitions.
func (d *Definitions) Hooks(ctx context.Context, namespace, agent string) (map[skeinv1.HookName]*definition.Hook, error) {
	a, err := d.Agent(ctx, namespace, agent)
	if err != nil {
		return nil, err
	}
	hooks := maps.Clone(a.A.Hooks)
	for _, s := range a.Sides() {
		for name, h := range s.Hooks {
			if hooks == nil {
				hooks = map[skeinv1.HookName]*definition.Hook{}
			}
			if hooks[name] == nil {
				hooks[name] = h
			}
		}
	}
	return hooks, nil
}

// Effect implements ports.Definitions.
func (d *Definitions) Effect(_ context.Context, _, name string) (*definition.Effect, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.effects[name]; e != nil {
		return e, nil
	}
	return nil, &definition.NotReadyError{Reason: skeinv1.ReasonReferenceNotFound, Message: fmt.Sprintf("Effect %q does not exist: create it", name)}
}

// Rules implements ports.Definitions. It returns the rules of the agent: threads have none of their own.
func (d *Definitions) Rules(_ context.Context, _, _, agent string) (definition.Rules, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rules definition.Rules
	if a := d.agents[agent]; a != nil {
		rules.Policy = a.Spec.RunPolicy
		if a.Spec.Limits != nil {
			rules.Limits = append(rules.Limits, *a.Spec.Limits)
		}
	}
	return rules, nil
}

// RuntimeContext implements ports.Definitions.
func (d *Definitions) RuntimeContext(context.Context, string, string) (map[string]any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.platform, nil
}

// CalledAgent implements ports.Definitions.
func (d *Definitions) CalledAgent(_ context.Context, _, name string) (*definition.CalledAgent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.agents[name]
	if a == nil || !a.Spec.ExposeAsTool {
		return nil, nil
	}
	return &definition.CalledAgent{ObjectName: name, Name: name, Description: a.Spec.ToolDescription}, nil
}

// HandoffPolicy implements ports.Definitions.
func (d *Definitions) HandoffPolicy(context.Context, string, string) (skeinv1.HandoffPolicy, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.policy, nil
}

// SetHandoffPolicy sets the handoff policy of all threads.
func (d *Definitions) SetHandoffPolicy(p skeinv1.HandoffPolicy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy = p
}

// Calls returns a change of an agent that lets it call others as tools.
func Calls(called ...definition.CalledAgent) func(*definition.Agent) {
	return func(a *definition.Agent) {
		for _, c := range called {
			c.Name = c.ObjectName
			a.A.Agents = append(a.A.Agents, c)
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Agent: c.ObjectName})
		}
	}
}

// CallsPrompt returns a change of an agent that lets it call a prompt as a tool. The prompt is made as Put makes an agent.
// ref has the settings that differ from the defaults.
func CallsPrompt(name string, ref skeinv1.PromptTool, change ...func(*definition.Agent)) func(*definition.Agent) {
	return func(a *definition.Agent) {
		d := NewDefinitions()
		d.Put(name, change...)
		made := d.agents[name]
		made.A.Model.Version = a.A.Model.Version + "/" + name
		if a.Prompts == nil {
			a.Prompts = map[string]*definition.CalledPrompt{}
		}
		for n, p := range made.Prompts {
			a.Prompts[n] = p
		}
		text, err := prompt.Build(context.Background(), name, &made.A.Prompt.Spec, included{d})
		made.A.Prompt.Text = text
		a.Prompts[name] = &definition.CalledPrompt{Side: made.A, Err: err}
		ref.Prompt = name
		a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, ref)
	}
}

// Configure sets what RuntimeContext returns: the configuration of the platform team.
func (d *Definitions) Configure(platform map[string]any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.platform = platform
}

// Endpoint implements ports.Definitions, for paths without patterns.
func (d *Definitions) Endpoint(_ context.Context, q definition.EndpointQuery) (*definition.Endpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := " /" + strings.Join(q.Path, "/")
	if e := d.endpoints[q.Method+at]; e != nil {
		return e, nil
	}
	var allow []string
	for key := range d.endpoints {
		if m, ok := strings.CutSuffix(key, at); ok {
			allow = append(allow, m)
		}
	}
	if slices.Sort(allow); len(allow) > 0 {
		return nil, &definition.MethodError{Method: q.Method, Allow: allow}
	}
	return nil, &definition.UnknownError{Message: "no endpoint has the path" + at}
}

// PutEndpoint adds an endpoint under a method and a path, such as "GET /report".
func (d *Definitions) PutEndpoint(at string, e definition.Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.ObjectName == "" {
		e.ObjectName = "endpoint"
	}
	d.endpoints[at] = &e
}

// Names implements ports.Definitions.
func (d *Definitions) Names(_ context.Context, _, kind string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := []string{}
	for name, a := range d.agents {
		switch kind {
		case "agent":
			names = append(names, name)
		case "prompt":
			names = append(names, a.A.Prompt.Name)
		case "model":
			names = append(names, a.A.Model.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Load implements ports.Definitions.
func (d *Definitions) Load(ctx context.Context, namespace, kind, name string) (json.RawMessage, error) {
	if kind != "agent" {
		return nil, &definition.UnknownError{Message: fmt.Sprintf("there is no %s %q", kind, name)}
	}
	a, err := d.Agent(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"name": a.Name, "type": a.Spec.Type})
}

// PutEffect adds an effect.
func (d *Definitions) PutEffect(name string, e definition.Effect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.ObjectName = name
	d.effects[name] = &e
}

// Put adds an agent, or replaces one.
func (d *Definitions) Put(name string, change ...func(*definition.Agent)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version++
	a := &definition.Agent{
		Namespace: Namespace, Name: name,
		Spec: skeinv1.AgentSpec{Type: skeinv1.AgentAIHuman},
		A: &definition.Side{
			Name: "a", Spec: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: name}},
			Prompt: definition.Prompt{Name: name, Spec: skeinv1.PromptSpec{Text: "You are a test."}},
			Model:  definition.Model{Name: name, Version: fmt.Sprint(d.version), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}},
		},
	}
	for _, c := range change {
		c(a)
	}
	d.agents[name] = a
}

// Dual returns a change of an agent that adds a second side. The changes are made to the second side as if it were the only
// one.
func Dual(change ...func(*definition.Agent)) func(*definition.Agent) {
	return func(a *definition.Agent) {
		name := a.Name + "-b"
		b := &definition.Agent{Namespace: a.Namespace, Name: a.Name, A: &definition.Side{
			Name: "b", Spec: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: name}},
			Prompt: definition.Prompt{Name: name, Spec: skeinv1.PromptSpec{Text: "You are the other side of a test."}},
			Model:  definition.Model{Name: name, Version: a.A.Model.Version, Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}},
		}}
		for _, c := range change {
			c(b)
		}
		a.Spec.Type, a.B = skeinv1.AgentDualAI, b.A
	}
}

// Script returns a change of an agent that sets a scripted model.
func Script(steps ...skeinv1.ScriptStep) func(*definition.Agent) {
	return func(a *definition.Agent) { a.A.Model.Steps = steps }
}

// Builtin returns a change of an agent that adds families of built-in tools to its prompt.
func Builtin(families ...skeinv1.BuiltinTool) func(*definition.Agent) {
	return func(a *definition.Agent) {
		for _, f := range families {
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: f})
		}
	}
}

// Approved returns a change of an agent that adds a family of built-in tools whose calls need approval. If timeout is 0 there
// is none.
func Approved(f skeinv1.BuiltinTool, timeout time.Duration) func(*definition.Agent) {
	return func(a *definition.Agent) {
		t := skeinv1.PromptTool{Builtin: f, RequiresApproval: true}
		if timeout != 0 {
			t.ApprovalTimeout = &metav1.Duration{Duration: timeout}
		}
		a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, t)
	}
}

// Skill returns a change of an agent that adds a skill to its prompt, and families of built-in tools that the skill unlocks.
func Skill(s skill.Skill, families ...skeinv1.BuiltinTool) func(*definition.Agent) {
	return func(a *definition.Agent) {
		p := &a.A.Prompt
		p.Skills = append(p.Skills, s)
		for _, f := range families {
			p.Spec.Tools = append(p.Spec.Tools, skeinv1.PromptTool{Builtin: f, Skill: s.Name})
		}
	}
}

// Say returns a step of a script that answers with a text, any number of times.
func Say(content string) skeinv1.ScriptStep {
	return skeinv1.ScriptStep{Content: content, Times: ptr.To[int32](0)}
}

// Call returns a step of a script that calls a tool once.
func Call(tool string, args any) skeinv1.ScriptStep {
	return skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{ToolCall(tool, args)}}
}

// ToolCall returns a tool call for a scripted answer.
func ToolCall(tool string, args any) skeinv1.ScriptToolCall {
	return skeinv1.ScriptToolCall{Name: tool, Arguments: &runtime.RawExtension{Raw: JSON(args)}}
}

// Tool implements ports.Definitions.
func (d *Definitions) Tool(_ context.Context, _, name string) (*definition.Tool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tools[name]; ok {
		return &t, nil
	}
	return nil, &definition.NotReadyError{Reason: skeinv1.ReasonReferenceNotFound, Message: fmt.Sprintf("Tool %q does not exist", name)}
}

// PutTool adds a Tool object.
func (d *Definitions) PutTool(name string, t definition.Tool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tools == nil {
		d.tools = map[string]definition.Tool{}
	}
	d.tools[name] = t
}

// EffectEnv implements ports.Definitions. It knows plain values only.
func (*Definitions) EffectEnv(_ context.Context, _ string, env []skeinv1.EnvVar) (out []thread.SpecEnv, err error) {
	for _, v := range env {
		if v.Value != nil {
			out = append(out, thread.SpecEnv{Name: v.Name, Value: *v.Value, Type: store.EnvText})
		}
	}
	return out, nil
}
