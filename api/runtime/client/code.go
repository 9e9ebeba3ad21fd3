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

// CodeOptions are the options of RunCode (COD-02). The zero value runs the default export of TypeScript without
// arguments.
type CodeOptions struct {
	// Language is "typescript" (the default) or "javascript".
	Language string
	// Filename is shown in stacks.
	Filename string
	// Fn is the export to call. Empty means "default".
	Fn string
	// Args are the arguments of the export, as values of package values.
	Args []any
	// Globals are the globals of the code by name, and Imports its imports by specifier and export (COD-03). They are
	// values of package values, or functions, which this program runs when the code calls and awaits them. A function
	// is a CodeFunc, or any Go function whose parameters decode from JSON, after an optional context.Context, and
	// which returns nothing, a value, an error, or both. Calls may run concurrently, each in its own goroutine. Their
	// context ends with the code.
	Globals map[string]any
	Imports map[string]map[string]any
	// Modules maps relative specifiers ("./lib/a.ts") to their sources.
	Modules map[string]string
	// Report and ReportValue receive each value that the code passes to report(), in order, as it comes: Report as
	// plain JSON, ReportValue unchanged. The code's next report waits while they run.
	Report      func(json.RawMessage)
	ReportValue func(any)
	// Log receives each call of console, in order, as it comes.
	Log func(runtimev1.CodeLog)
	// MemoryLimitBytes limits the memory of the engine. 0 means the pool's default. It never exceeds the pool's cap.
	MemoryLimitBytes int64
	// WallTime limits how long the code may take. 0 means the pool's cap. It never exceeds that cap.
	WallTime time.Duration
}

// CodeFunc is a function that code may call. Its arguments and result are values of package values. An error is
// thrown in the code; a *runtimev1.CodeError sets its name.
type CodeFunc = func(ctx context.Context, args []any) (any, error)

// CodeExecution is a running or settled execution of code (COD-04). Its methods are safe for concurrent use.
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
	reported chan struct{} // closed and replaced at each report
}

// RunCode runs the source of an ES module in a fresh isolate in the thread's sandbox, apart from the conversation
// (COD-01). It returns the handle at once; Wait returns how the code ended. The code ends when ctx ends, and when
// this program or its connection ends.
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

// ExecuteCode runs code with one plain request and waits for its end. All values are JSON, and there are no
// functions. The result says how the code ended. An error means that the code did not run. Ending ctx ends the code.
// Through the Kubernetes API server a plain request lasts a minute at most; RunCode has no such limit.
func (t *Thread) ExecuteCode(ctx context.Context, req runtimev1.CodeRequest) (*runtimev1.CodeResult, error) {
	return sendAs[runtimev1.CodeResult](ctx, t, http.MethodPost, req, runtimev1.SubresourceCode)
}

// ended returns the result of code that did not end by itself.
func ended(status, name, message string) *runtimev1.CodeResult {
	return &runtimev1.CodeResult{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindCodeResult), Status: status,
		Error: &runtimev1.CodeError{Name: name, Message: message},
	}
}

// settle stores the first outcome, with the reports and logs so far. Later calls do nothing.
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

// Wait returns how the code ended. An error means that the code did not run (ErrTerminated, ErrUnavailable, …), or
// that ctx ended first. In that case the code continues.
func (x *CodeExecution) Wait(ctx context.Context) (*runtimev1.CodeResult, error) {
	select {
	case <-x.done:
		return x.result, x.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the code has settled.
func (x *CodeExecution) Done() <-chan struct{} { return x.done }

// Value returns what the export returned, as a value of package values. CodeResult.Result is the nearest JSON. Value
// is Undefined until the code has settled successfully.
func (x *CodeExecution) Value() any {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.value
}

// Running reports whether the code has not settled yet.
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

// Reports returns the values that the code passes to report(), in order, as they come. It ends when the code has
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

// run converts the options to their wire form. It returns the functions separately, because they stay here. An error
// names what cannot be sent.
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
