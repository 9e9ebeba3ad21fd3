package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// CodeOptions of RunCode (SPEC COD-02). The zero value runs the default export of TypeScript without arguments.
type CodeOptions struct {
	// Language: "typescript" (default) or "javascript".
	Language string
	// Filename shown in stacks.
	Filename string
	// Fn is the export to call: "default" when empty.
	Fn string
	// Args of the export, each what encodes as JSON.
	Args []any
	// Globals by name, and Imports by specifier and export: values that encode as JSON. Functions are not carried
	// over HTTP: code that is given one settles as link_error.
	Globals map[string]any
	Imports map[string]map[string]any
	// Modules: relative specifier ("./lib/a.ts") → source.
	Modules map[string]string
	// Report gets each value that the code gives to report(), in order.
	Report func(json.RawMessage)
	// MemoryLimitBytes of the engine; the pool's default when 0, never above its cap.
	MemoryLimitBytes int64
	// WallTime that the code may take; the pool's cap when 0, never above it.
	WallTime time.Duration
}

// CodeExecution is code under way (SPEC COD-04). Its methods are safe for concurrent use.
type CodeExecution struct {
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu      sync.Mutex
	settled bool
	result  *runtimev1.CodeResult
	err     error
}

// RunCode runs the source of an ES module in a fresh isolate in the thread's sandbox, apart from the conversation
// (SPEC COD-01), and gives the handle at once; Wait gives how it ended. Ending ctx ends the code.
func (t *Thread) RunCode(ctx context.Context, source string, o CodeOptions) *CodeExecution {
	ctx, cancel := context.WithCancelCause(ctx)
	x := &CodeExecution{cancel: cancel, done: make(chan struct{})}
	req, err := o.request(source)
	if err != nil {
		x.settle(&runtimev1.CodeResult{
			TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindCodeResult), Status: runtimev1.CodeLinkError,
			Error: &runtimev1.CodeError{Name: "LinkError", Message: err.Error()},
		}, nil)
		cancel(nil)
		return x
	}
	go func() {
		defer cancel(nil)
		result, err := t.ExecuteCode(ctx, *req)
		if err == nil && o.Report != nil {
			for _, r := range result.Reports {
				o.Report(r)
			}
		}
		x.settle(result, err)
	}()
	return x
}

// ExecuteCode is RunCode in the terms of the wire, waiting for the end. How the code ended is in the result; an
// error means that it did not run. Ending ctx ends the code.
func (t *Thread) ExecuteCode(ctx context.Context, req runtimev1.CodeRequest) (*runtimev1.CodeResult, error) {
	return one[runtimev1.CodeResult](func(out any) error {
		return t.send(ctx, http.MethodPost, req, out, runtimev1.SubresourceCode)
	})
}

// settle keeps the first outcome.
func (x *CodeExecution) settle(result *runtimev1.CodeResult, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return
	}
	x.settled, x.result, x.err = true, result, err
	close(x.done)
}

// Wait gives how the code ended. An error means that it did not run (ErrTerminated, ErrUnavailable, …), or that ctx
// ended first, which leaves the code running.
func (x *CodeExecution) Wait(ctx context.Context) (*runtimev1.CodeResult, error) {
	select {
	case <-x.done:
		return x.result, x.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Running tells whether the code has not settled yet.
func (x *CodeExecution) Running() bool {
	select {
	case <-x.done:
		return false
	default:
		return true
	}
}

// Terminate ends the code: it settles as terminated with the reason, unless it has settled already.
func (x *CodeExecution) Terminate(reason string) {
	x.settle(&runtimev1.CodeResult{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindCodeResult), Status: runtimev1.CodeTerminated,
		Error: &runtimev1.CodeError{Name: "TerminatedError", Message: reason},
	}, nil)
	x.cancel(errors.New(reason))
}

// Reports gives the values that the code gave to report(), in order, as they come, and ends when the code has
// settled.
func (x *CodeExecution) Reports() iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		<-x.done // the wire gives them with the result
		if x.result == nil {
			return
		}
		for _, r := range x.result.Reports {
			if !yield(r) {
				return
			}
		}
	}
}

// request puts the options into the terms of the wire; an error names what cannot be carried.
func (o *CodeOptions) request(source string) (*runtimev1.CodeRequest, error) {
	req := &runtimev1.CodeRequest{
		Source: source, Language: o.Language, Filename: o.Filename, Modules: o.Modules,
		MemoryLimitBytes: o.MemoryLimitBytes,
	}
	if o.WallTime != 0 {
		req.WallTime = &metav1.Duration{Duration: o.WallTime}
	}
	var err error
	if o.Fn != "" || len(o.Args) > 0 {
		req.Execute = &runtimev1.CodeExecute{Fn: o.Fn}
		for i, a := range o.Args {
			raw, err := encodeValue(fmt.Sprintf("argument %d", i), a)
			if err != nil {
				return nil, err
			}
			req.Execute.Args = append(req.Execute.Args, raw)
		}
	}
	if req.Globals, err = encodeValues("global", o.Globals); err != nil {
		return nil, err
	}
	for specifier, exports := range o.Imports {
		values, err := encodeValues("import "+specifier+":", exports)
		if err != nil {
			return nil, err
		}
		if req.Imports == nil {
			req.Imports = map[string]map[string]json.RawMessage{}
		}
		req.Imports[specifier] = values
	}
	return req, nil
}

func encodeValues(what string, in map[string]any) (map[string]json.RawMessage, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make(map[string]json.RawMessage, len(in))
	for name, v := range in {
		raw, err := encodeValue(what+" "+name, v)
		if err != nil {
			return nil, err
		}
		out[name] = raw
	}
	return out, nil
}

func encodeValue(what string, v any) (json.RawMessage, error) {
	if v != nil && reflect.TypeOf(v).Kind() == reflect.Func {
		return nil, fmt.Errorf("%s is a function: functions cannot be given to code over this connection, give values", what)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written as JSON: %w", what, err)
	}
	return raw, nil
}
