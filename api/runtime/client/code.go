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
	"github.com/skein-dev/skein/api/runtime/values"
)

// CodeOptions of RunCode (COD-02). The zero value runs the default export of TypeScript without arguments.
type CodeOptions struct {
	// Language: "typescript" (default) or "javascript".
	Language string
	// Filename shown in stacks.
	Filename string
	// Fn is the export to call: "default" when empty.
	Fn string
	// Args of the export: values as package values has them.
	Args []any
	// Globals by name, and Imports by specifier and export: values as package values has them, and functions, which
	// the code awaits and this program runs (COD-03). A function is a CodeFunc, or any Go function whose
	// parameters decode from JSON, after an optional context.Context, and which gives nothing, a value, an error, or
	// both. Calls may come at once, each in a goroutine of its own; their context ends with the code.
	Globals map[string]any
	Imports map[string]map[string]any
	// Modules: relative specifier ("./lib/a.ts") → source.
	Modules map[string]string
	// Report gets each value that the code gives to report(), in order, as it comes: as plain JSON, and as it is.
	// While it runs, the code's next report waits.
	Report      func(json.RawMessage)
	ReportValue func(any)
	// Log gets each call of console, in order, as it comes.
	Log func(runtimev1.CodeLog)
	// MemoryLimitBytes of the engine; the pool's default when 0, never above its cap.
	MemoryLimitBytes int64
	// WallTime that the code may take; the pool's cap when 0, never above it.
	WallTime time.Duration
}

// CodeFunc is a function that code may call: arguments and result are those of package values. An error is thrown
// in the code; a *runtimev1.CodeError chooses its name.
type CodeFunc = func(ctx context.Context, args []any) (any, error)

// CodeExecution is code under way (COD-04). Its methods are safe for concurrent use.
type CodeExecution struct {
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu       sync.Mutex
	settled  bool
	result   *runtimev1.CodeResult
	value    any
	err      error
	reports  []json.RawMessage
	logs     []runtimev1.CodeLog
	reported chan struct{} // closed, and made anew, when there is another report
}

// RunCode runs the source of an ES module in a fresh isolate in the thread's sandbox, apart from the conversation
// (COD-01), and gives the handle at once; Wait gives how it ended. Ending ctx ends the code, and so does the
// end of this program or of its connection.
func (t *Thread) RunCode(ctx context.Context, source string, o CodeOptions) *CodeExecution {
	ctx, cancel := context.WithCancelCause(ctx)
	x := &CodeExecution{cancel: cancel, done: make(chan struct{}), reported: make(chan struct{}), value: values.Undefined{}}
	run, functions, err := o.run(source)
	if err != nil {
		x.settle(ended(runtimev1.CodeLinkError, "LinkError", err.Error()), nil, nil)
		cancel(nil)
		return x
	}
	go func() {
		defer cancel(nil)
		(&codeStream{thread: t, options: o, execution: x, functions: functions}).run(ctx, run)
	}()
	return x
}

// ExecuteCode runs code to its end by one plain request, in the terms of the wire: all values are JSON, and there are
// no functions. How the code ended is in the result; an error means that it did not run. Ending ctx ends the code.
// Through the Kubernetes API server a plain request lasts a minute at most; RunCode has no such bound.
func (t *Thread) ExecuteCode(ctx context.Context, req runtimev1.CodeRequest) (*runtimev1.CodeResult, error) {
	return one[runtimev1.CodeResult](func(out any) error {
		return t.send(ctx, http.MethodPost, req, out, runtimev1.SubresourceCode)
	})
}

// ended is the result of code that did not end by itself.
func ended(status, name, message string) *runtimev1.CodeResult {
	return &runtimev1.CodeResult{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindCodeResult), Status: status,
		Error: &runtimev1.CodeError{Name: name, Message: message},
	}
}

// settle keeps the first outcome, with the reports and logs so far.
func (x *CodeExecution) settle(result *runtimev1.CodeResult, value any, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return
	}
	if result != nil {
		result.Reports, result.Logs = x.reports, x.logs
		if result.Status == runtimev1.CodeSuccess {
			x.value = value
		}
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

// Done is closed when the code has settled.
func (x *CodeExecution) Done() <-chan struct{} { return x.done }

// Value is what the export returned, as it is (package values), where CodeResult.Result is the nearest JSON. It is
// undefined until the code has settled with success.
func (x *CodeExecution) Value() any {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.value
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
	if reason == "" {
		reason = "terminated by its caller"
	}
	x.settle(ended(runtimev1.CodeTerminated, terminatedName, reason), nil, nil)
	x.cancel(errors.New(reason))
}

const terminatedName = "Terminated"

// Reports gives the values that the code gave to report(), in order, as they come, and ends when the code has
// settled.
func (x *CodeExecution) Reports() iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		for given := 0; ; {
			x.mu.Lock()
			more, next, over := x.reports[given:], x.reported, x.settled
			x.mu.Unlock()
			for _, r := range more {
				if given++; !yield(r) {
					return
				}
			}
			if over {
				return
			}
			select {
			case <-next:
			case <-x.done:
			}
		}
	}
}

func (x *CodeExecution) report(r json.RawMessage) (kept bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return false
	}
	x.reports = append(x.reports, r)
	close(x.reported)
	x.reported = make(chan struct{})
	return true
}

func (x *CodeExecution) log(l runtimev1.CodeLog) (kept bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return false
	}
	x.logs = append(x.logs, l)
	return true
}

// run puts the options into the terms of the wire, apart from the functions, which stay here; an error names what
// cannot be carried.
func (o *CodeOptions) run(source string) (*runtimev1.CodeRun, map[runtimev1.CodeFunction]CodeFunc, error) {
	run := &runtimev1.CodeRun{CodeRequest: runtimev1.CodeRequest{
		Source: source, Language: o.Language, Filename: o.Filename, Modules: o.Modules, MemoryLimitBytes: o.MemoryLimitBytes,
	}}
	if o.WallTime != 0 {
		run.WallTime = &metav1.Duration{Duration: o.WallTime}
	}
	if o.Fn != "" || len(o.Args) > 0 {
		run.Execute = &runtimev1.CodeExecute{Fn: o.Fn}
		for i, a := range o.Args {
			raw, err := values.Marshal(a)
			if err != nil {
				return nil, nil, fmt.Errorf("argument %d: %w", i, err)
			}
			run.Execute.Args = append(run.Execute.Args, raw)
		}
	}
	functions := map[runtimev1.CodeFunction]CodeFunc{}
	bind := func(specifier, what string, bindings map[string]any) (map[string]json.RawMessage, error) {
		plain := map[string]json.RawMessage{}
		for name, v := range bindings {
			var err error
			if v != nil && reflect.TypeOf(v).Kind() == reflect.Func {
				f := runtimev1.CodeFunction{Import: specifier, Name: name}
				functions[f], err = codeFunc(v)
				run.Functions = append(run.Functions, f)
			} else {
				plain[name], err = values.Marshal(v)
			}
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", what, name, err)
			}
		}
		return plain, nil
	}
	var err error
	if run.Globals, err = bind("", "global", o.Globals); err != nil {
		return nil, nil, err
	}
	for specifier, exports := range o.Imports {
		if run.Imports == nil {
			run.Imports = map[string]map[string]json.RawMessage{}
		}
		if run.Imports[specifier], err = bind(specifier, "import "+specifier+":", exports); err != nil {
			return nil, nil, err
		}
	}
	return run, functions, nil
}
