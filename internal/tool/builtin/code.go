package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// maxBridgedFile is the largest file that code can read at once.
const maxBridgedFile = 16 << 20

// code returns the family that runs code written by the model, in an isolate of its own (COD-01).
func code(h *tool.Host) []tool.Tool {
	return []tool.Tool{newTool("run_code",
		"Runs TypeScript or JavaScript in a sandbox and gives what its default export returned, what it passed to report(), and its console output. "+
			"The source is an ES module: export default a value or a function, which may be async. There is no network and no clock. "+
			"With files, these globals reach the files of this conversation: await readFile(path) gives the text or null, "+
			"await listFiles(prefix) gives paths and sizes, await writeFile(path, text) writes.",
		`{"type":"object","required":["source"],"additionalProperties":false,"properties":{
			"source":{"type":"string","minLength":1,"maxLength":262144,"description":"The module's source text"},
			"args":{"description":"Argument for the default export; an array gives several"},
			"files":{"type":"boolean","description":"Whether the code may use the files of this conversation; true by default"},
			"language":{"type":"string","enum":["typescript","javascript"],"description":"typescript by default"}}}`,
		func(ctx context.Context, _ tool.Call, a runArgs) tool.Result { return runCode(ctx, h, a) })}
}

type runArgs struct {
	Source   string          `json:"source"`
	Args     json.RawMessage `json:"args"`
	Files    *bool           `json:"files"`
	Language string          `json:"language"`
}

// runResult is the result as the model reads it (COD-05).
type runResult struct {
	Status     sandbox.Status  `json:"status"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      *runError       `json:"error,omitempty"`
	Reports    json.RawMessage `json:"reports,omitempty"`
	Logs       []string        `json:"logs,omitempty"`
	DurationMs int64           `json:"durationMs"`
}

type runError struct {
	Name    string `json:"name,omitempty"`
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"`
}

func runCode(ctx context.Context, h *tool.Host, a runArgs) tool.Result {
	args, err := runArguments(a.Args)
	if err != nil {
		return tool.Failure("args: " + err.Error())
	}
	req := sandbox.CodeRequest{Source: a.Source, Language: sandbox.Language(a.Language), Args: args}
	if a.Files == nil || *a.Files {
		req.Globals = bridgeFiles(h.State)
	}
	res, err := h.Code.RunCode(ctx, req)
	if err != nil {
		return tool.Failure("no sandbox could be had for the code: " + err.Error())
	}
	return describe(res)
}

func runArguments(raw json.RawMessage) ([]any, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return nil, nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	if list, ok := v.([]any); ok {
		return list, nil
	}
	return []any{v}, nil
}

// describe converts the result of an execution to the result of the tool.
func describe(res sandbox.Result) tool.Result {
	out := runResult{Status: res.Status, DurationMs: res.Duration.Milliseconds()}
	var err error
	if res.Status == sandbox.StatusSuccess {
		if out.Result, err = value.ToJSON(res.Value); err != nil {
			return tool.Failure("the code returned what cannot be written as JSON: " + err.Error())
		}
	}
	if len(res.Reports) > 0 {
		if out.Reports, err = value.ToJSON(res.Reports); err != nil {
			return tool.Failure("the code reported what cannot be written as JSON: " + err.Error())
		}
	}
	for _, l := range res.Logs {
		out.Logs = append(out.Logs, l.Level+": "+l.Message)
	}
	if res.Error != nil {
		out.Error = &runError{Name: res.Error.Name, Message: res.Error.Message, Stack: res.Error.Stack}
		if res.Error.Stack == "" && res.Error.Line > 0 {
			out.Error.Stack = fmt.Sprintf("at line %d, column %d", res.Error.Line, res.Error.Column)
		}
	}
	r := tool.SuccessJSON(out)
	if res.Status != sandbox.StatusSuccess {
		r.Status = tool.StatusError
	}
	return r
}

// bridgeFiles returns the globals through which code reaches the files of the thread.
func bridgeFiles(st *thread.State) map[string]sandbox.Binding {
	return map[string]sandbox.Binding{
		"readFile": {Func: func(ctx context.Context, args []any) (any, error) {
			path, err := textArg("readFile", args, 0)
			if err != nil {
				return nil, err
			}
			data, rec, err := st.ReadFile(ctx, path, maxBridgedFile, 2) // the text and the answer
			if err != nil || rec == nil {
				return nil, err
			}
			return validText(ctx, data)
		}},
		"listFiles": {Func: func(ctx context.Context, args []any) (any, error) {
			prefix := "/"
			if len(args) > 0 {
				if given, ok := args[0].(string); ok && given != "" {
					prefix = given
				}
			}
			recs, err := st.ListFiles(ctx, prefix, true)
			if err != nil {
				return nil, err
			}
			out := make([]any, 0, len(recs))
			for _, r := range recs {
				out = append(out, map[string]any{"path": r.Path, "size": float64(r.Size), "mimeType": r.MimeType, "isDirectory": r.IsDirectory})
			}
			return out, nil
		}},
		"writeFile": {Func: func(ctx context.Context, args []any) (any, error) {
			path, err := textArg("writeFile", args, 0)
			if err != nil {
				return nil, err
			}
			text, err := textArg("writeFile", args, 1)
			if err != nil {
				return nil, err
			}
			rec, err := st.WriteFile(ctx, path, strings.NewReader(text), thread.WriteFileOptions{})
			if err != nil {
				return nil, err
			}
			return map[string]any{"path": rec.Path, "size": float64(rec.Size)}, nil
		}},
	}
}

// validText returns data as a text. What is not UTF-8 becomes U+FFFD, which takes more memory than the data.
func validText(ctx context.Context, data []byte) (string, error) {
	if utf8.Valid(data) {
		return string(data), nil
	}
	if err := membudget.From(ctx).Draw(ctx, 4*int64(len(data))); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), nil
}

func textArg(fn string, args []any, i int) (string, error) {
	if i < len(args) {
		if s, ok := args[i].(string); ok {
			return s, nil
		}
	}
	return "", &sandbox.Error{Name: "TypeError", Message: fmt.Sprintf("%s: argument %d must be a string", fn, i+1)}
}
