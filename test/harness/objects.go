package harness

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func meta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

// Raw makes a JSON object of v.
func Raw(v any) *runtime.RawExtension {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return &runtime.RawExtension{Raw: b}
}

// Agent with one side. Its model is not asked for titles unless edit says so: specs count what models are asked.
func Agent(ns, name, prompt string, edit ...func(*skeinv1.AgentSpec)) *skeinv1.Agent {
	a := &skeinv1.Agent{ObjectMeta: meta(ns, name), Spec: skeinv1.AgentSpec{
		SideA: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: prompt}}, TitlePolicy: skeinv1.TitleNever,
	}}
	for _, f := range edit {
		f(&a.Spec)
	}
	return a
}

// Handler is an agent in code, with the Models that it may ask by the names that the code has for them.
func Handler(ns, name, source string, models map[string]string) *skeinv1.Agent {
	h := &skeinv1.SideHandler{Code: skeinv1.CodeSource{Inline: source}}
	for _, as := range slices.Sorted(maps.Keys(models)) {
		h.Models = append(h.Models, skeinv1.HandlerModel{Name: as, ModelRef: skeinv1.LocalRef{Name: models[as]}})
	}
	return &skeinv1.Agent{ObjectMeta: meta(ns, name), Spec: skeinv1.AgentSpec{SideA: skeinv1.AgentSide{Handler: h}}}
}

// Prompt with tools: names of Tools, or "builtin:FAMILY", "agent:NAME" for one that the conversation is handed to, "ask:NAME"
// for one that is asked, and "prompt:NAME".
func Prompt(ns, name, model string, tools ...string) *skeinv1.Prompt {
	p := &skeinv1.Prompt{ObjectMeta: meta(ns, name), Spec: skeinv1.PromptSpec{Text: "You are the agent of a test.", ModelRef: skeinv1.LocalRef{Name: model}}}
	for _, t := range tools {
		kind, called, found := strings.Cut(t, ":")
		if !found {
			kind, called = "", t
		}
		var ref skeinv1.PromptTool
		switch kind {
		case "builtin":
			ref.Builtin = skeinv1.BuiltinTool(called)
		case "agent":
			ref.Agent = called
		case "prompt":
			ref.Prompt = called
		case "ask":
			ref.Agent, ref.Mode = called, skeinv1.AgentToolAsk
		default:
			ref.Name = t
		}
		p.Spec.Tools = append(p.Spec.Tools, ref)
	}
	return p
}

// Scripted model that plays steps.
func Scripted(ns, name string, steps ...skeinv1.ScriptStep) *skeinv1.Model {
	return &skeinv1.Model{ObjectMeta: meta(ns, name), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted, Script: &skeinv1.ModelScript{Steps: steps}}}
}

// Embedder is a model that gives vectors of the words in a text.
func Embedder(ns, name string) *skeinv1.Model {
	yes := true
	return &skeinv1.Model{ObjectMeta: meta(ns, name), Spec: skeinv1.ModelSpec{
		Provider: skeinv1.ProviderScripted, Capabilities: &skeinv1.ModelCapabilities{Embeddings: &yes}, Pricing: &skeinv1.ModelPricing{Input: "1000"},
	}}
}

// OpenAI model at a base URL, its key from the Secret key "apiKey". Its timeout is no part of what specs look at unless they
// set one: on a busy machine an answer may take seconds.
func OpenAI(ns, name, url, secret string) *skeinv1.Model {
	m := &skeinv1.Model{ObjectMeta: meta(ns, name), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI, Model: "test-model", Endpoint: url, MaxRetries: ptr.To[int32](0), Timeout: &metav1.Duration{Duration: time.Minute}}}
	if secret != "" {
		m.Spec.Credentials = &skeinv1.ModelCredentials{SecretKeyRef: corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "apiKey"}}
	}
	return m
}

// Echo answers every message with "echo: " and its text.
func Echo() skeinv1.ScriptStep {
	return skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: "echo: {{ .Last.Content }}"}
}

// Answer is a step that says text once.
func Answer(text string) skeinv1.ScriptStep { return skeinv1.ScriptStep{Content: text} }

// Calls is a step that calls a tool once.
func Calls(tool string, args any) skeinv1.ScriptStep {
	return skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{Name: tool, Arguments: Raw(args)}}}
}

// On makes a step answer only messages that match an expression, any number of times.
func On(matches string, s skeinv1.ScriptStep) skeinv1.ScriptStep {
	s.When, s.Times = &skeinv1.ScriptMatch{Role: "user", Matches: matches}, ptr.To[int32](0)
	return s
}

// After makes a step answer the result of a tool, any number of times.
func After(tool string, s skeinv1.ScriptStep) skeinv1.ScriptStep {
	s.When, s.Times = &skeinv1.ScriptMatch{Role: "tool", Tool: tool}, ptr.To[int32](0)
	return s
}

// Slow gives a step a latency.
func Slow(d time.Duration, s skeinv1.ScriptStep) skeinv1.ScriptStep {
	s.Latency = &metav1.Duration{Duration: d}
	return s
}

// CodeTool is a Tool in TypeScript with an object schema; properties may be nil.
func CodeTool(ns, name, source string, properties map[string]any, required ...string) *skeinv1.Tool {
	schema := map[string]any{"type": "object", "additionalProperties": false}
	if properties != nil {
		schema["properties"] = properties
	}
	if required != nil {
		schema["required"] = required
	}
	return &skeinv1.Tool{ObjectMeta: meta(ns, name), Spec: skeinv1.ToolSpec{Description: "A tool of a test.", Parameters: Raw(schema), Code: &skeinv1.CodeSource{Inline: source}}}
}

// HTTPTool is a Tool that makes a request, with an object schema; properties may be nil.
func HTTPTool(ns, name string, spec skeinv1.HTTPTool, properties map[string]any, required ...string) *skeinv1.Tool {
	t := CodeTool(ns, name, "", properties, required...)
	t.Spec.Code, t.Spec.HTTP = nil, &spec
	return t
}

// Effect in TypeScript.
func Effect(ns, name, source string) *skeinv1.Effect {
	return &skeinv1.Effect{ObjectMeta: meta(ns, name), Spec: skeinv1.EffectSpec{Code: skeinv1.CodeSource{Inline: source}}}
}

// Endpoint in TypeScript, for GET unless edited.
func Endpoint(ns, name, path, source string, edit ...func(*skeinv1.ThreadEndpointSpec)) *skeinv1.ThreadEndpoint {
	e := &skeinv1.ThreadEndpoint{ObjectMeta: meta(ns, name), Spec: skeinv1.ThreadEndpointSpec{Path: path, Code: skeinv1.CodeSource{Inline: source}}}
	for _, f := range edit {
		f(&e.Spec)
	}
	return e
}

// NewThread is a Thread object.
func NewThread(ns, name, agent string, edit ...func(*skeinv1.ThreadSpec)) *skeinv1.Thread {
	t := &skeinv1.Thread{ObjectMeta: meta(ns, name), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: agent}}}
	for _, f := range edit {
		f(&t.Spec)
	}
	return t
}
