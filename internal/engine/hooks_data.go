package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
)

// What hooks get and give. What they give is as hostile as all that code says: it is read field by field, and what
// a hook may not change stays as it was.

// kept are keys of metadata by which Skein knows what a message is: a hook cannot change them.
var kept = []string{transcript.MetadataQueuedTool, metadataReplyTo, metadataHookDepth, thread.MetadataSubagent, thread.MetadataStatusKind}

// changeMessage makes the changes of before_create_message: content, name, silent and metadata, those that are given.
func changeMessage(m *store.Message, v any) error {
	given, err := object(v, "the message")
	if err != nil {
		return err
	}
	changed := *m
	if err := changeContent(&changed, given); err != nil {
		return err
	}
	switch silent := given["silent"].(type) {
	case nil, value.Undefined:
	case bool:
		changed.Silent = silent
	default:
		return errors.New("silent must be true or false")
	}
	if v, ok := given["metadata"]; ok && v != any(value.Undefined{}) {
		metadata, err := metadataOf(v)
		if err != nil {
			return err
		}
		for _, key := range kept {
			delete(metadata, key)
			if was, ok := m.Metadata[key]; ok {
				metadata[key] = was
			}
		}
		if changed.Metadata = metadata; len(metadata) == 0 {
			changed.Metadata = nil
		}
	}
	*m = changed
	return nil
}

// changeContent takes over content and name.
func changeContent(m *store.Message, given map[string]any) error {
	if v, ok := given["content"]; ok {
		switch content := v.(type) {
		case string:
			content = cleanText(content)
			m.Content = &content
		case value.Undefined:
		case nil:
			if len(m.ToolCalls) == 0 && len(m.Attachments) == 0 {
				return errors.New("content can be null only where there are tool calls or attachments")
			}
			m.Content = nil
		default:
			return errors.New("content must be a string")
		}
	}
	switch name := given["name"].(type) {
	case nil, value.Undefined:
	case string:
		m.Name = cleanText(name)
	default:
		return errors.New("name must be a string")
	}
	return nil
}

// changeUpdate makes the changes of before_update_message: what is given replaces what was to be changed.
func changeUpdate(u *thread.MessageUpdate, v any) error {
	given, err := object(v, "the updates")
	if err != nil {
		return err
	}
	var in struct {
		Content    *string              `json:"content"`
		Metadata   map[string]any       `json:"metadata"`
		Status     *store.MessageStatus `json:"status"`
		ToolStatus *string              `json:"tool_status"`
		Silent     *bool                `json:"silent"`
	}
	if err := value.Into(given, &in); err != nil {
		return err
	}
	if in.Content != nil {
		text := cleanText(*in.Content)
		in.Content = &text
	}
	for _, key := range kept {
		delete(in.Metadata, key)
		if was, ok := u.Metadata[key]; ok {
			if in.Metadata == nil {
				in.Metadata = map[string]any{}
			}
			in.Metadata[key] = was
		}
	}
	*u = thread.MessageUpdate{Content: in.Content, Metadata: in.Metadata, Status: in.Status, ToolStatus: in.ToolStatus, Silent: in.Silent}
	return nil
}

// updateForHook is what before_update_message gets: what is to be changed.
func updateForHook(u *thread.MessageUpdate) map[string]any {
	out := map[string]any{}
	if u.Content != nil {
		out["content"] = *u.Content
	}
	if u.Metadata != nil {
		out["metadata"] = u.Metadata
	}
	if u.Status != nil {
		out["status"] = string(*u.Status)
	}
	if u.ToolStatus != nil {
		out["tool_status"] = *u.ToolStatus
	}
	if u.Silent != nil {
		out["silent"] = *u.Silent
	}
	return out
}

// callForHook is a tool call as hooks get it: its arguments read, or as the model wrote them when they are no JSON.
func callForHook(call store.ToolCall) map[string]any {
	var args any
	if json.Unmarshal([]byte(call.Arguments), &args) != nil {
		args = call.Arguments
	}
	return map[string]any{"id": call.ID, "name": call.Name, "arguments": args}
}

// resultForHook is a stored result as hooks get it: as invokeTool gives one (SPEC TOL-01), and its message's id.
func resultForHook(m *store.Message) map[string]any {
	out := code.Answer(tool.Result{Status: tool.Status(m.ToolStatus), Content: transcript.ContentOf(m), Attachments: m.Attachments})
	out["messageId"] = m.ID
	return out
}

// changeResult makes the changes of before_store_tool_result: {status, result} or {status, error}, or a text that
// takes the place of the old one.
func changeResult(m *store.Message, v any) error {
	if text, ok := v.(string); ok {
		m.Content = &text
		return nil
	}
	given, err := object(v, "the result")
	if err != nil {
		return err
	}
	status, _ := given["status"].(string)
	if status != string(tool.StatusSuccess) && status != string(tool.StatusError) {
		return errors.New(`the result needs status "success" or "error"`)
	}
	res := code.Read(given)
	m.ToolStatus, m.Content = string(res.Status), &res.Content
	return nil
}

func object(v any, what string) (map[string]any, error) {
	given, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s must be an object, or nothing to leave it as it is", what)
	}
	return given, nil
}

func metadataOf(v any) (map[string]any, error) {
	out := map[string]any{}
	if v == nil {
		return out, nil
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, errors.New("metadata must be an object")
	}
	raw, err := value.ToJSON(v)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return out, json.Unmarshal(raw, &out)
}

// cleanText makes a text storable.
func cleanText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}
