package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
)

// This file converts the data that hooks receive and return. What a hook returns is as untrusted as any other output
// of code: it is read field by field, and what a hook may not change stays as it was.

// reservedMetadata lists the metadata keys that tell Skein what a message is, and those without which a provider refuses an answer that
// it gets again. A hook cannot change them.
var reservedMetadata = []string{
	transcript.MetadataQueuedTool, runlog.MetadataReplyTo, runlog.MetadataHookDepth, thread.MetadataSubagent, thread.MetadataStatusKind,
	model.MetadataThinking, model.MetadataReasoning, model.MetadataOrigin, model.MetadataCallIDs,
}

// changeMessage applies what before_create_message returned: content, name, silent and metadata, as far as they are
// set.
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
		for _, key := range reservedMetadata {
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

// changeContent applies content and name.
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

// changeUpdate applies what before_update_message returned, which replaces the original update.
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
	for _, key := range reservedMetadata {
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

// updateForHook returns the argument of before_update_message: the requested update.
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

// callForHook returns a tool call as hooks receive it: with parsed arguments, or with the text that the model wrote
// when it is not valid JSON.
func callForHook(call store.ToolCall) map[string]any {
	var args any
	if json.Unmarshal([]byte(call.Arguments), &args) != nil {
		args = call.Arguments
	}
	return map[string]any{"id": call.ID, "name": call.Name, "arguments": args}
}

// resultForHook returns a stored result as hooks receive it: in the form that invokeTool returns (TOL-01), with the
// id of its message.
func resultForHook(m *store.Message) map[string]any {
	out := code.Answer(tool.Result{Status: tool.Status(m.ToolStatus), Content: transcript.ContentOf(m), Attachments: m.Attachments})
	out["messageId"] = m.ID
	return out
}

// changeResult applies what before_store_tool_result returned: {status, result} or {status, error}, or a text that
// replaces the old one.
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

// cleanText returns s with everything replaced that the store cannot hold: NUL and invalid UTF-8.
func cleanText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}
