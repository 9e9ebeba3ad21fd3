package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// methodTerminate is the method that a handle's terminate(reason) calls. The isolate handles it; the Host does not
// see it.
const methodTerminate = "runCode.terminate"

// runs are the executions that one isolate has started, for terminate. mu guards both maps.
type runs struct {
	mu         sync.Mutex
	executions map[int64]sandbox.Execution
	early      map[int64]string // terminated before they started
}

// maxEarly bounds the terminated executions that are remembered although they never start.
const maxEarly = 1000

// terminate ends an execution, by its number and with a reason. It may be called before the execution is added; add then ends it.
func (r *runs) terminate(args []any) error {
	if len(args) < 2 {
		return errors.New("terminate takes a run and a reason")
	}
	id, reason := runID(args[0]), fmt.Sprint(args[1])
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.executions[id]; ok {
		e.Terminate(reason)
		return nil
	}
	if r.early == nil {
		r.early = map[int64]string{}
	}
	if len(r.early) < maxEarly {
		r.early[id] = reason
	}
	return nil
}

func (r *runs) add(id int64, e sandbox.Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.executions == nil {
		r.executions = map[int64]sandbox.Execution{}
	}
	r.executions[id] = e
	if reason, ok := r.early[id]; ok {
		delete(r.early, id)
		e.Terminate(reason)
	}
}

func (r *runs) remove(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.executions, id)
}

func runID(v any) int64 {
	f, _ := v.(float64)
	return int64(f)
}

// ServeRunCode serves state.runCode(source, options) for a Host. args are the arguments of its call "runCode", iso is
// the isolate that called, and sbx is where the code runs. It returns the result object that the code awaits
// (COD-05). That object reports errors in the options too, as link_error (COD-02). Cancelling ctx ends the code.
func ServeRunCode(ctx context.Context, sbx sandbox.Sandbox, iso sandbox.Isolate, args []any) (any, error) {
	r, err := RunCodeFor(ctx, sbx, iso, args)
	if err != nil {
		return nil, err
	}
	return ResultObject(r), nil
}

// RunCodeFor is ServeRunCode for a Host that may run the code once more. ResultObject converts its result to what the
// code awaits.
func RunCodeFor(ctx context.Context, sbx sandbox.Sandbox, iso sandbox.Isolate, args []any) (sandbox.Result, error) {
	req, failed := parseRunCode(iso, args)
	if failed != nil {
		return sandbox.Result{Status: sandbox.StatusLinkError, Error: failed}, nil
	}
	e := sbx.RunCode(ctx, req)
	if own := unwrap(iso); own != nil && len(args) > 2 {
		id := runID(args[2])
		own.runs.add(id, e)
		defer own.runs.remove(id)
	}
	r := e.Wait(ctx)
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, context.Cause(ctx)
	}
	return r, nil
}

// unwrap returns our own isolate from one that others may have wrapped, using their method Unwrap.
func unwrap(iso sandbox.Isolate) *isolate {
	for {
		switch i := iso.(type) {
		case *isolate:
			return i
		case interface{ Unwrap() sandbox.Isolate }:
			iso = i.Unwrap()
		default:
			return nil
		}
	}
}

// parseRunCode parses the arguments of a runCode call.
func parseRunCode(iso sandbox.Isolate, args []any) (req sandbox.CodeRequest, failed *sandbox.Error) {
	source, ok := arg(args, 0).(string)
	if !ok {
		return req, linkError("TypeError", "runCode takes the source as a string")
	}
	req.Source = source
	if req.Depth = int(runID(arg(args, 3))); req.Depth > sandbox.MaxDepth {
		return req, linkError("RangeError", "this run would be the %dth of runs that wait for each other: %d are the most", req.Depth, sandbox.MaxDepth)
	}
	var options map[string]any
	switch o := arg(args, 1).(type) {
	case nil, value.Undefined:
	case map[string]any:
		options = o
	default:
		return req, linkError("TypeError", "the options of runCode must be an object")
	}
	for _, name := range keys(options) {
		v := options[name]
		if _, unset := v.(value.Undefined); unset {
			continue
		}
		if failed := parseOption(&req, iso, name, v); failed != nil {
			return req, failed
		}
	}
	return req, nil
}

func arg(args []any, i int) any {
	if i < len(args) {
		return args[i]
	}
	return value.Undefined{}
}

func parseOption(req *sandbox.CodeRequest, iso sandbox.Isolate, name string, v any) *sandbox.Error {
	var ok bool
	switch name {
	case "execute":
		return parseExecute(req, v)
	case "globals":
		req.Globals, ok = bindings(iso, v)
		if !ok {
			return linkError("TypeError", "options.globals must be an object of functions and values")
		}
	case "imports":
		all, isObject := v.(map[string]any)
		req.Imports = map[string]map[string]sandbox.Binding{}
		for specifier, exports := range all {
			if req.Imports[specifier], ok = bindings(iso, exports); !ok {
				return withSpecifier(specifier, linkError("TypeError", "options.imports[%.100q] must be an object of functions and values", specifier))
			}
		}
		if !isObject {
			return linkError("TypeError", "options.imports must be an object")
		}
	case "modules":
		all, isObject := v.(map[string]any)
		if !isObject {
			return linkError("TypeError", "options.modules must be an object of sources")
		}
		req.Modules = map[string]string{}
		for specifier, source := range all {
			if req.Modules[specifier], ok = source.(string); !ok {
				return withSpecifier(specifier, linkError("TypeError", "options.modules[%.100q] must be a string", specifier))
			}
		}
	case "language":
		lang, isText := v.(string)
		if !isText {
			return linkError("TypeError", "options.language must be a string")
		}
		req.Language = sandbox.Language(lang)
	case "filename":
		if req.Filename, ok = v.(string); !ok {
			return linkError("TypeError", "options.filename must be a string")
		}
	case "memoryLimitBytes":
		n, isNumber := v.(float64)
		if !isNumber || n < 1 || n != math.Trunc(n) || n > 1<<50 {
			return linkError("RangeError", "options.memoryLimitBytes must be a positive number of bytes")
		}
		req.MemoryLimitBytes = int64(n)
	case "report":
		ref, isFunc := v.(sandbox.FuncRef)
		if !isFunc {
			return linkError("TypeError", "options.report must be a function")
		}
		req.Report = func(v any) {
			// The callback's errors stay in the callback: the code that reports has continued.
			_, _ = iso.Call(context.Background(), ref, []any{v})
		}
	default:
		return linkError("TypeError", "runCode has no option %.100q: it has execute, filename, globals, imports, language, memoryLimitBytes, modules and report", name)
	}
	return nil
}

func parseExecute(req *sandbox.CodeRequest, v any) *sandbox.Error {
	all, ok := v.(map[string]any)
	if !ok {
		return linkError("TypeError", "options.execute must be an object: { fn, args }")
	}
	for _, name := range keys(all) {
		v := all[name]
		if _, unset := v.(value.Undefined); unset {
			continue
		}
		switch name {
		case "fn":
			if req.Fn, ok = v.(string); !ok {
				return linkError("TypeError", "options.execute.fn must be the name of an export")
			}
		case "args":
			if req.Args, ok = v.([]any); !ok {
				return linkError("TypeError", "options.execute.args must be an array")
			}
		default:
			return linkError("TypeError", "options.execute has no property %.100q: it has fn and args", name)
		}
	}
	return nil
}

// bindings turns the functions of an object into calls back into the isolate.
func bindings(iso sandbox.Isolate, v any) (map[string]sandbox.Binding, bool) {
	all, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	out := make(map[string]sandbox.Binding, len(all))
	for name, v := range all {
		b := sandbox.Binding{Value: v}
		if ref, isFunc := v.(sandbox.FuncRef); isFunc {
			b = sandbox.Binding{Func: func(ctx context.Context, args []any) (any, error) { return iso.Call(ctx, ref, args) }}
		}
		out[name] = b
	}
	return out, true
}

// ResultObject returns a result in the form that code sees (COD-05).
func ResultObject(r sandbox.Result) map[string]any {
	logs := make([]any, len(r.Logs))
	for i, l := range r.Logs {
		logs[i] = map[string]any{"level": l.Level, "message": l.Message, "time": l.Time}
	}
	reports := r.Reports
	if reports == nil {
		reports = []any{}
	}
	out := map[string]any{
		"status":     string(r.Status),
		"result":     value.Undefined{},
		"reports":    reports,
		"logs":       logs,
		"durationMs": float64(r.Duration) / float64(time.Millisecond),
	}
	if r.Status == sandbox.StatusSuccess {
		out["result"] = r.Value
	}
	if r.MemoryUsedBytes > 0 {
		out["memoryUsedBytes"] = r.MemoryUsedBytes
	}
	if e := r.Error; e != nil {
		failure := map[string]any{"name": e.Name, "message": protocol.Cut(e.Message, protocol.MaxMessage), "stack": e.Stack}
		if e.Specifier != "" {
			failure["specifier"] = e.Specifier
		}
		if e.Line > 0 {
			failure["line"], failure["column"] = e.Line, e.Column
		}
		out["error"] = failure
	}
	return out
}
