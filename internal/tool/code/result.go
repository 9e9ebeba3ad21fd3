package code

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

const maxStackShown = 1000

// Explain returns why definition code failed, for the model and the log of the thread.
func Explain(err error) string {
	var gone *sandbox.IsolateGoneError
	if errors.As(err, &gone) {
		if gone.Status == sandbox.StatusMemory {
			return "the code was ended because it used more memory than it may: " + gone.Reason
		}
		return "the code was ended before it was done, so its work may be half done: " + gone.Reason
	}
	var thrown *sandbox.Error
	if !errors.As(err, &thrown) {
		return err.Error()
	}
	text := thrown.Error()
	stack := strings.TrimRight(thrown.Stack, "\n ")
	if stack == "" || strings.Contains(text, stack) {
		return text
	}
	if !strings.HasPrefix(stack, text) {
		stack = text + "\n" + stack
	}
	if limit := len(text) + maxStackShown; len(stack) > limit {
		stack = strings.ToValidUTF8(stack[:limit], "") + "…"
	}
	return stack
}

// resultOf converts what a tool's code returned: {status, result, error, attachments} as in the seeds' API, or any
// other value, which counts as success.
func resultOf(ctx context.Context, h *tool.Host, v any) tool.Result {
	object, ok := v.(map[string]any)
	if !ok {
		return success(v)
	}
	switch object["status"] {
	case string(tool.StatusError), string(tool.StatusSuccess):
	default:
		return success(v)
	}
	r := Read(object)
	if r.Status == tool.StatusError {
		return r
	}
	list, ok := object["attachments"].([]any)
	if !ok {
		return r
	}
	for i, item := range list {
		a, err := attachment(ctx, h.State, item)
		if err != nil {
			return tool.Failure(fmt.Sprintf("attachments[%d] of the tool's result: %v", i, err))
		}
		r.Attachments = append(r.Attachments, a)
	}
	return r
}

// Read converts a result with a status: {status: "success", result} or {status: "error", error}. It ignores
// attachments.
func Read(object map[string]any) tool.Result {
	if object["status"] == string(tool.StatusError) {
		return tool.Failure(errorText(object))
	}
	return success(object["result"])
}

func success(v any) tool.Result {
	switch v := v.(type) {
	case nil, value.Undefined:
		return tool.Success("")
	case string:
		return tool.Success(v)
	}
	text, err := value.ToJSON(v)
	if err != nil {
		return tool.Failure("the tool returned what cannot be written as JSON: " + err.Error())
	}
	return tool.Success(string(text))
}

func errorText(object map[string]any) string {
	for _, key := range []string{"error", "result", "message"} {
		switch v := object[key].(type) {
		case nil, value.Undefined:
		case string:
			if v != "" {
				return v
			}
		default:
			if text, err := value.ToJSON(v); err == nil {
				return string(text)
			}
		}
	}
	return "the tool failed and did not say why"
}

// attachment returns a file of the thread by its path, or writes the given content to a file first.
func attachment(ctx context.Context, st *thread.State, item any) (store.Attachment, error) {
	object, ok := item.(map[string]any)
	if !ok {
		return store.Attachment{}, errors.New("give {path} of a file, or {name, mimeType, data}")
	}
	name, _ := object["name"].(string)
	if path, ok := object["path"].(string); ok && path != "" {
		rec, err := st.StatFile(ctx, path)
		if err != nil {
			return store.Attachment{}, err
		}
		if rec == nil || rec.IsDirectory {
			return store.Attachment{}, fmt.Errorf("there is no file %s: write it first", path)
		}
		return attachmentOf(rec, name), nil
	}
	var data []byte
	switch d := object["data"].(type) {
	case []byte:
		data = d
	case string:
		var err error
		if data, err = base64.StdEncoding.DecodeString(d); err != nil {
			return store.Attachment{}, errors.New("data must be bytes or base64 text")
		}
	default:
		return store.Attachment{}, errors.New("give {path} of a file, or {name, mimeType, data}")
	}
	if name == "" {
		return store.Attachment{}, errors.New("name is missing")
	}
	mimeType, _ := object["mimeType"].(string)
	rec, err := st.WriteFile(ctx, "/attachments/"+name, bytes.NewReader(data), thread.WriteFileOptions{MimeType: mimeType})
	if err != nil {
		return store.Attachment{}, err
	}
	return attachmentOf(rec, name), nil
}

func attachmentOf(rec *thread.FileRecord, name string) store.Attachment {
	if name == "" {
		name = rec.Name
	}
	return store.Attachment{Path: rec.Path, Name: name, MimeType: rec.MimeType, Size: rec.Size}
}
