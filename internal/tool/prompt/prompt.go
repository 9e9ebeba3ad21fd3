// Package prompt implements prompts as tools of other prompts (AGT-05, TOL-02). The run makes the call and lets the
// called prompt's model and tools work on it. This package describes what the call asks for.
package prompt

import (
	"context"
	"encoding/json"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// messageProperty is the argument that becomes the message to the called prompt, unless the caller names another.
const messageProperty = "message"

// anyMessage is the schema of the arguments for a prompt that requires none.
const anyMessage = `{"type":"object","required":["message"],"properties":{
	"message":{"type":"string","minLength":1,"description":"What to do, with all that is needed to do it"}}}`

// New returns the tool for a prompt that another prompt lists as ref.
func New(ref skeinv1.PromptTool, name, description string, required json.RawMessage) tool.Tool {
	t := &promptTool{ref: ref, definition: tool.Definition{Name: name, Description: description, Parameters: required}}
	if len(required) == 0 {
		t.definition.Parameters = json.RawMessage(anyMessage)
	}
	return t
}

type promptTool struct {
	ref        skeinv1.PromptTool
	definition tool.Definition
}

// Definition implements tool.Tool.
func (t *promptTool) Definition() tool.Definition { return t.definition }

// Call implements tool.Tool.
func (t *promptTool) Call(_ context.Context, call tool.Call) tool.Result {
	return tool.Result{Prompt: &tool.PromptCall{
		Prompt: t.ref.Prompt, Arguments: call.Arguments, Message: t.message(call.Arguments),
		IncludeText:  t.ref.IncludeTextResponse == nil || *t.ref.IncludeTextResponse,
		IncludeCalls: t.ref.IncludeToolCalls != nil && *t.ref.IncludeToolCalls,
		HideErrors:   t.ref.IncludeErrors != nil && !*t.ref.IncludeErrors,
	}}
}

// message returns the message for the called prompt: the argument that is named for it, or else all arguments.
func (t *promptTool) message(arguments json.RawMessage) string {
	property := t.ref.InitUserMessageProperty
	if property == "" {
		property = messageProperty
	}
	var args map[string]json.RawMessage
	_ = json.Unmarshal(arguments, &args) // an object: the schema has checked it
	value, there := args[property]
	if !there {
		return string(arguments)
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}
