// Package code runs code in the sandbox of a thread, for one request or for a client that attends it over a WebSocket.
package code

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Engine is the part of the engine that runs code.
type Engine interface {
	RunCode(ctx context.Context, threadID string, req sandbox.CodeRequest) (sandbox.Result, error)
}

// Handler runs code in the sandbox of a thread.
type Handler struct {
	Engine Engine
	Access *access.Reviews
	Options
}

// Options are the limits of WebSockets on which code runs.
type Options struct {
	Heartbeat       time.Duration   // the interval of pings to clients
	TransferTimeout time.Duration   // bounds one message, in either direction
	Stopping        <-chan struct{} // closed when the server stops
}

// Run answers POST code (COD-01, COD-05). The request ends with the code, and a client that disconnects ends the
// code.
func (h *Handler) Run(c *call.Call) error {
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	var in runtimev1.CodeRequest
	if err := call.DecodeStrict(c.Name, body, &in); err != nil {
		var refused *apierrors.StatusError
		if errors.As(err, &refused) && apierrors.IsInvalid(refused) {
			// An unknown or malformed option is a result of the code, not an error of the request (COD-02).
			return c.WriteJSON(http.StatusOK, linkError(refused.ErrStatus.Message))
		}
		return err
	}
	if in.Source == "" {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, "source", "set it to the source of an ES module")
	}
	req, err := codeRequest(c.Name, &in, plainValue)
	if err != nil {
		return err
	}
	result, err := h.Engine.RunCode(c.Context(), c.Row.ID, req)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, wholeResult(result))
}

func linkError(message string) *runtimev1.CodeResult {
	return &runtimev1.CodeResult{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindCodeResult), Status: runtimev1.CodeLinkError,
		Error: &runtimev1.CodeError{Name: "LinkError", Message: message},
	}
}

// codeRequest converts the options of a request. decode reads one value in them.
func codeRequest(name string, in *runtimev1.CodeRequest, decode func([]byte) (any, error)) (sandbox.CodeRequest, error) {
	req := sandbox.CodeRequest{
		Source: in.Source, Filename: in.Filename, Language: sandbox.Language(in.Language),
		Modules: in.Modules, MemoryLimitBytes: in.MemoryLimitBytes,
	}
	switch {
	case req.Language != "" && req.Language != sandbox.TypeScript && req.Language != sandbox.JavaScript:
		return req, status.Invalid(name, metav1.CauseTypeFieldValueNotSupported, "language", "it must be typescript or javascript")
	case in.MemoryLimitBytes < 0:
		return req, status.Invalid(name, metav1.CauseTypeFieldValueInvalid, "memoryLimitBytes", "it must be 0, which means the pool's default, or more")
	case in.WallTime != nil && in.WallTime.Duration <= 0:
		return req, status.Invalid(name, metav1.CauseTypeFieldValueInvalid, "wallTime", `it must be a duration above zero, such as "5s"; or leave it out`)
	}
	if in.WallTime != nil {
		req.WallTime = in.WallTime.Duration
	}
	if in.Execute != nil {
		req.Fn = in.Execute.Fn
		for i, raw := range in.Execute.Args {
			v, err := decode(raw)
			if err != nil {
				return req, status.Invalid(name, metav1.CauseTypeFieldValueInvalid, fmt.Sprintf("execute.args[%d]", i), err.Error())
			}
			req.Args = append(req.Args, v)
		}
	}
	var err error
	if req.Globals, err = bindings(name, "globals", in.Globals, decode); err != nil {
		return req, err
	}
	for specifier, exports := range in.Imports {
		b, err := bindings(name, "imports["+specifier+"]", exports, decode)
		if err != nil {
			return req, err
		}
		if req.Imports == nil {
			req.Imports = map[string]map[string]sandbox.Binding{}
		}
		req.Imports[specifier] = b
	}
	return req, nil
}

func bindings(name, field string, in map[string]json.RawMessage, decode func([]byte) (any, error)) (map[string]sandbox.Binding, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make(map[string]sandbox.Binding, len(in))
	for key, raw := range in {
		v, err := decode(raw)
		if err != nil {
			return nil, status.Invalid(name, metav1.CauseTypeFieldValueInvalid, field+"."+key, err.Error())
		}
		out[key] = sandbox.Binding{Value: v}
	}
	return out, nil
}

// plainValue decodes an argument that was sent as plain JSON. values.Unmarshal decodes one in the wire form, which can
// also be a value that JSON has no form for.
func plainValue(raw []byte) (any, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("it is not a JSON value: %w", err)
	}
	return v, nil
}

// codeResult converts a result to its wire form. encode writes one value in it.
func codeResult(r sandbox.Result, encode func(any) (json.RawMessage, error)) *runtimev1.CodeResult {
	out := &runtimev1.CodeResult{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindCodeResult), Status: string(r.Status),
		DurationMs: float64(r.Duration) / float64(time.Millisecond), MemoryUsedBytes: r.MemoryUsedBytes,
	}
	if e := r.Error; e != nil {
		out.Error = &runtimev1.CodeError{Name: e.Name, Message: e.Message, Stack: e.Stack, Specifier: e.Specifier, Line: e.Line, Column: e.Column}
	}
	if r.Status == sandbox.StatusSuccess {
		v, err := encode(r.Value)
		if err != nil {
			notWritten(out, "the result", err)
		}
		out.Result = v
	}
	return out
}

// notWritten turns a result into an error when a value in it cannot be written as JSON.
func notWritten(out *runtimev1.CodeResult, what string, err error) {
	out.Status, out.Result = runtimev1.CodeErrored, nil
	out.Error = &runtimev1.CodeError{Name: "DataCloneError", Message: what + " cannot be written as JSON: " + err.Error()}
}

// wholeResult is codeResult with the reports and logs, all as plain JSON.
func wholeResult(r sandbox.Result) *runtimev1.CodeResult {
	out := codeResult(r, value.ToJSON)
	for i, rep := range r.Reports {
		v, err := value.ToJSON(rep)
		if err != nil {
			notWritten(out, fmt.Sprintf("report %d", i), err)
			break
		}
		out.Reports = append(out.Reports, v)
	}
	for _, l := range r.Logs {
		out.Logs = append(out.Logs, codeLog(l))
	}
	return out
}

func codeLog(l sandbox.Log) runtimev1.CodeLog {
	return runtimev1.CodeLog{Level: l.Level, Message: l.Message, Time: l.Time.UnixMicro()}
}
