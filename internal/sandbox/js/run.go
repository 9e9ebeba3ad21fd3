//go:build linux && (amd64 || arm64)

package js

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/stacks"
)

// Limits on what code may report.
const (
	maxReports     = 10_000
	maxReportBytes = 32 << 20
)

// runner executes one runCode call.
type runner struct {
	*machine
	open   *protocol.Open
	loader *loader
	stacks func(string) string // maps positions back to the sources

	reports     int
	reportBytes int
	status      sandbox.Status // set when the code has settled
	outcome     protocol.Outcome
}

// run executes an Open of KindRun and sends its Done.
func (m *machine) run(open *protocol.Open) error {
	if open.Wall > 0 {
		reason := fmt.Sprintf("the code ran for longer than %s, its limit", open.Wall)
		defer time.AfterFunc(open.Wall-open.Spent, func() { m.stop(reason) }).Stop()
	}
	r := &runner{machine: m, open: open}
	watched := func() {}
	if !open.Compiled() {
		watched = m.watchCompiler(open.Memory)
	}
	failed := r.link()
	watched()
	if failed != nil {
		return m.done(sandbox.StatusLinkError, protocol.Outcome{Err: failed})
	}
	if err := r.globals(); err != nil {
		return m.ended(err)
	}
	if err := r.execute(); err != nil {
		return m.ended(err)
	}
	return m.done(r.status, r.outcome)
}

// link compiles the modules and adds them to the loader.
func (r *runner) link() *sandbox.Error {
	r.loader = &loader{sources: map[string]qjs.Source{}, bare: map[string]func() (qjs.Source, error){}}
	compiled := map[string]sandbox.Module{}
	for _, m := range r.open.Modules {
		module, err := r.compile(m)
		if err != nil {
			if m.Name != r.open.Main {
				err.Specifier = "./" + m.Name
			}
			return err
		}
		compiled[m.Name] = module
		r.loader.sources[m.Name] = qjs.Source{Code: module.Code}
	}
	r.stacks = stacks.New(compiled).Stack

	main, _ := json.Marshal(r.open.Main)
	r.loader.sources[entryModule] = qjs.Source{Code: fmt.Sprintf("import %q;\nimport * as ns from %s;\nexport { ns };\n", startModule, main)}
	r.loader.sources[startModule] = qjs.Source{Code: fmt.Sprintf("import { started } from %q;\nstarted();\n", hostModule)}
	return nil
}

// compile compiles a module, unless the supervisor has done so.
func (r *runner) compile(m protocol.Module) (sandbox.Module, *sandbox.Error) {
	if m.Form == protocol.FormCompiled {
		return sandbox.Module{Code: m.Source, Filename: m.Name, SourceMap: m.Map}, nil
	}
	return r.compiler.Compile(m)
}

const (
	entryModule = internal + "entry"
	startModule = internal + "start"
	hostModule  = internal + "host"
)

// globals defines the globals of the code: console, report, and what the request provides. It also makes the modules that the request provides,
// and sets the loader.
func (r *runner) globals() error {
	vm := r.vm
	global := vm.Global()
	defer vm.Free(global)
	if !r.console.install(global) {
		return errMemory
	}
	report, ok := vm.Func("report", 1, r.report)
	if !ok || !vm.Define(global, "report", report, qjs.Hidden) {
		return errMemory
	}
	started, ok := vm.Func("started", 0, func([]qjs.Value) (qjs.Value, bool) {
		if err := r.start(); err != nil {
			r.stop(err.Error())
		}
		return qjs.Undefined, true
	})
	if !ok {
		return errMemory
	}
	r.loader.sources[hostModule] = qjs.Source{Synthetic: &qjs.SyntheticModule{Exports: []qjs.Export{{Name: "started", Value: started}}}}

	imports := map[string]*qjs.SyntheticModule{}
	for i, b := range r.open.Bindings {
		v, err := r.bind(i, b)
		if err != nil {
			return err
		}
		if b.Specifier == "" {
			if !vm.Define(global, b.Name, v, qjs.Plain) {
				return errMemory
			}
			continue
		}
		module := imports[b.Specifier]
		if module == nil {
			module = &qjs.SyntheticModule{}
			imports[b.Specifier] = module
			r.loader.bare[b.Specifier] = func() (qjs.Source, error) { return qjs.Source{Synthetic: module}, nil }
		}
		module.Exports = append(module.Exports, qjs.Export{Name: b.Name, Value: v})
	}
	vm.SetLoader(r.loader)
	return nil
}

// bind returns the value of a binding: a function that calls the host, or a plain value.
func (r *runner) bind(i int, b protocol.Binding) (qjs.Value, error) {
	if b.Func {
		f, ok := r.vm.Func(b.Name, 0, func(args []qjs.Value) (qjs.Value, bool) {
			return r.hostCall(target{Func: uint64(i)}, args, nil, nil)
		})
		if !ok {
			return f, errMemory
		}
		return f, nil
	}
	return r.decode(b.Value)
}

func (r *runner) decode(b []byte) (qjs.Value, error) {
	v, err := r.vm.Decode(b)
	if errors.Is(err, qjs.ErrNoMemory) {
		err = errMemory
	}
	return v, err
}

// report sends a value to the caller of runCode.
func (r *runner) report(args []qjs.Value) (qjs.Value, bool) {
	v := qjs.Undefined
	if len(args) > 0 {
		v = args[0]
	}
	b, err := r.vm.Encode(v, nil)
	switch {
	case errors.Is(err, qjs.ErrThrown):
		return r.vm.Rethrow()
	case err != nil:
		return r.vm.ThrowError("TypeError", err.Error())
	}
	defer r.vm.Release(b)
	r.reports++
	r.reportBytes += len(b)
	if r.reports > maxReports || r.reportBytes > maxReportBytes {
		return r.vm.ThrowError("RangeError", fmt.Sprintf("too much was reported: at most %d values and %d MiB", maxReports, maxReportBytes>>20))
	}
	if err := r.conn.Write(protocol.TypeReport, b); err != nil {
		return r.vm.ThrowError("Error", err.Error())
	}
	return qjs.Undefined, true
}

// execute imports the main module, calls the export, and waits until it has settled.
func (r *runner) execute() error {
	promise, ok := r.vm.Import(internal, entryModule)
	if ok {
		r.tasks = append(r.tasks, &task{promise: promise, done: r.imported, stuck: r.stuck})
	} else {
		r.failedNow()
	}
	for {
		if err := r.turn(); err != nil {
			return err
		}
		if r.status != "" {
			return nil
		}
		if err := r.unstick(); err != nil {
			return err
		}
		if r.status != "" {
			return nil
		}
		if err := r.wait(func(f frame) error { return protocol.Violation("frame type %d during a run", f.typ) }); err != nil {
			return err
		}
	}
}

// imported continues after the main module has run.
func (r *runner) imported(state qjs.PromiseState, v qjs.Value) error {
	if state == qjs.Rejected {
		r.failed(v)
		return nil
	}
	ns, ok := r.vm.Get(v, "ns")
	if !ok {
		r.failedNow()
		return nil
	}
	defer r.vm.Free(ns)
	result, ok := r.callExport(ns)
	if !ok {
		return nil
	}
	promise, ok := r.vm.Settled(result)
	r.vm.Free(result)
	if !ok {
		r.failedNow()
		return nil
	}
	r.tasks = append(r.tasks, &task{promise: promise, done: r.returned, stuck: r.stuck})
	return nil
}

// callExport calls the requested export. An export that is not a function is the result itself.
func (r *runner) callExport(ns qjs.Value) (qjs.Value, bool) {
	name := r.open.Fn
	if name == "" {
		name = "default"
	}
	export, ok := r.vm.Get(ns, name)
	if !ok {
		r.failedNow()
		return qjs.Undefined, false
	}
	if !r.vm.IsFunction(export) {
		names := r.vm.Keys(ns)
		if r.open.Fn == "" || slices.Contains(names, name) {
			return export, true
		}
		if len(names) == 0 {
			names = []string{"nothing"}
		}
		r.settleAs(sandbox.StatusLinkError, failure("ReferenceError", "the code exports no %q: it exports %s", name, strings.Join(names, ", ")))
		return qjs.Undefined, false
	}
	defer r.vm.Free(export)
	args, err := r.vm.DecodeArgs(r.open.Args)
	if err != nil {
		r.settleAs(sandbox.StatusMemory, failure("InternalError", "the arguments take more memory than the code may use"))
		return qjs.Undefined, false
	}
	result, ok := r.vm.Call(export, qjs.Undefined, args...)
	for _, a := range args {
		r.vm.Free(a)
	}
	if !ok {
		r.failedNow()
	}
	return result, ok
}

// returned sends what the export returned.
func (r *runner) returned(state qjs.PromiseState, v qjs.Value) error {
	if state == qjs.Rejected {
		r.failed(v)
		return nil
	}
	b, err := r.vm.Encode(v, nil)
	switch {
	case errors.Is(err, qjs.ErrThrown):
		r.failedNow()
	case err != nil:
		r.settleAs(sandbox.StatusError, r.encodeFailure(err))
	default:
		r.settleAs(sandbox.StatusSuccess, protocol.Outcome{Value: b})
	}
	return nil
}

func (r *runner) settleAs(status sandbox.Status, o protocol.Outcome) {
	if r.status == "" {
		r.status, r.outcome = status, o
	}
}

// stuck settles code whose promise nothing can settle any more.
func (r *runner) stuck() error {
	r.settleAs(sandbox.StatusError, failure("Error", "the code awaits a promise that nothing settles any more"))
	return nil
}

// failedNow is failed for the exception that the engine holds.
func (r *runner) failedNow() {
	v := r.vm.Exception()
	r.failed(v)
	r.vm.Free(v)
}

// missingExport matches the engine's error for an import of something that a module does not export.
var missingExport = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`in module '([^']*)'`) })

// failed settles the code with what it threw.
func (r *runner) failed(v qjs.Value) {
	if r.vm.Stopped() {
		return
	}
	e, info := r.thrown(v)
	e.Stack = strings.TrimRight(e.Error()+"\n"+r.stacks(e.Stack), "\n")
	status := sandbox.StatusError
	switch {
	case info.IsOutOfMemory():
		status = sandbox.StatusMemory
		e.Message = "the code ran out of memory: its limit is " + size(r.open.Memory)
	case !r.started:
		status = sandbox.StatusLinkError
		e.Specifier = r.loader.failed
		if m := missingExport().FindStringSubmatch(e.Message); m != nil && e.Specifier == "" {
			e.Specifier = m[1]
		}
	}
	r.settleAs(status, protocol.Outcome{Err: e})
}

func size(bytes int64) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}
