// Package session implements the tools with which a model reports on its session (AGT-01): that it is done, that it
// failed, or how far it is. Skein supplies them under the names that the agent chooses. The engine ends the session.
package session

import (
	"context"
	"encoding/json"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
)

// Kind is the kind of a session tool.
type Kind string

// The kinds.
const (
	Stop   Kind = "stop"
	Fail   Kind = "fail"
	Status Kind = "status"
)

// Tools returns the session tools of a side.
func Tools(side skeinv1.AgentSide, h *tool.Host) []tool.Tool {
	var out []tool.Tool
	for _, t := range []struct {
		kind Kind
		spec *skeinv1.SessionTool
		text string
	}{
		{Stop, side.SessionStop, "Ends this session with its result."},
		{Fail, side.SessionFail, "Ends this session because the task cannot be done."},
		{Status, side.SessionStatus, "Tells in a few words how far the task is. The session goes on."},
	} {
		if t.spec != nil {
			out = append(out, &sessionTool{kind: t.kind, spec: *t.spec, description: t.text, host: h})
		}
	}
	return out
}

// KindOf returns which session tool of a side has a name; "" for none.
func KindOf(side skeinv1.AgentSide, name string) (Kind, *skeinv1.SessionTool) {
	switch {
	case side.SessionStop != nil && side.SessionStop.Name == name:
		return Stop, side.SessionStop
	case side.SessionFail != nil && side.SessionFail.Name == name:
		return Fail, side.SessionFail
	case side.SessionStatus != nil && side.SessionStatus.Name == name:
		return Status, side.SessionStatus
	}
	return "", nil
}

// Message is the content of a call of a session tool.
type Message struct {
	Text        string
	Attachments []string // paths of the thread's files
}

// Read returns the text and the attachments from the arguments of a call.
func Read(spec *skeinv1.SessionTool, arguments string) Message {
	var args map[string]json.RawMessage
	var m Message
	if json.Unmarshal([]byte(arguments), &args) != nil {
		return m
	}
	if json.Unmarshal(args[messageProperty(spec)], &m.Text) != nil {
		m.Text = string(args[messageProperty(spec)]) // use any other value as JSON
	}
	_ = json.Unmarshal(args[attachmentsProperty(spec)], &m.Attachments) // absent means none
	return m
}

func messageProperty(spec *skeinv1.SessionTool) string {
	if spec.MessageProperty == "" {
		return "message"
	}
	return spec.MessageProperty
}

func attachmentsProperty(spec *skeinv1.SessionTool) string {
	if spec.AttachmentsProperty == "" {
		return "attachments"
	}
	return spec.AttachmentsProperty
}

type sessionTool struct {
	kind        Kind
	spec        skeinv1.SessionTool
	description string
	host        *tool.Host
}

// Definition implements tool.Tool.
func (t *sessionTool) Definition() tool.Definition {
	properties := map[string]any{messageProperty(&t.spec): map[string]any{"type": "string", "minLength": 1}}
	if t.kind != Status {
		properties[attachmentsProperty(&t.spec)] = map[string]any{
			"type": "array", "maxItems": 100, "items": map[string]any{"type": "string"}, "description": "Paths of files to hand over",
		}
	}
	schema, _ := json.Marshal(map[string]any{ // marshalling strings cannot fail
		"type": "object", "required": []string{messageProperty(&t.spec)}, "properties": properties,
	})
	return tool.Definition{Name: t.spec.Name, Description: t.description, Parameters: schema}
}

// Call implements tool.Tool.
func (t *sessionTool) Call(ctx context.Context, call tool.Call) tool.Result {
	m := Read(&t.spec, string(call.Arguments))
	for _, path := range m.Attachments {
		rec, err := t.host.State.StatFile(ctx, path)
		if err != nil {
			return tool.Failure(err.Error())
		}
		if rec == nil || rec.IsDirectory {
			return tool.Failure(fmt.Sprintf("there is no file %s: write it first, or leave it out", path))
		}
	}
	if t.kind == Status {
		if err := t.host.Lifecycle.SetStatus(ctx, m.Text); err != nil {
			return tool.Failure(err.Error())
		}
	}
	return tool.Success("noted")
}
