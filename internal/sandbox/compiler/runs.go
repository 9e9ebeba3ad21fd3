//go:build linux && (amd64 || arm64)

package compiler

import (
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Limits of Runs. A source that needs more is compiled by the child that runs it, within the limits of its run.
const (
	MaxRun     = 64 << 10 // bytes of all modules together
	runTimeout = 200 * time.Millisecond
	runWait    = time.Second
)

// Runs compiles the modules of runs, in one process that stays, so that the process of a run has no compiler to start. It is for code of one
// tenant: a source may take all of the process's time, for which others wait. It is safe for concurrent use.
type Runs struct{ lane *lane }

// NewRuns returns a compiler of runs. Its process starts when it is first needed.
func NewRuns(o Options) *Runs {
	o.Timeout, o.Wait = runTimeout, runWait
	o.complete()
	return &Runs{&lane{opts: o}}
}

// Compile compiles all modules of a run. ok is false when one of them has a mistake, and when they are too much for this compiler: the child
// that is to run them has a compiler then, and reports what is wrong.
func (r *Runs) Compile(modules []protocol.Module) (compiled []protocol.Module, ok bool) {
	size := 0
	for _, m := range modules {
		size += len(m.Source)
	}
	if size > MaxRun || len(modules) == 0 {
		return nil, false
	}
	answer, failed, over := r.lane.ask(request{Run: modules})
	if failed != nil || over != inTime || answer.Error != nil {
		return nil, false
	}
	compiled = make([]protocol.Module, len(modules))
	for i, m := range answer.Run {
		compiled[i] = protocol.Module{Name: modules[i].Name, Form: protocol.FormCompiled, Source: m.Code, Map: m.SourceMap}
	}
	return compiled, true
}

// Warm starts the process and lets it compile something, so that it does not build its tables while a run waits.
func (r *Runs) Warm() {
	r.Compile([]protocol.Module{{Name: "warm.ts", Form: protocol.FormTypeScript, Source: "export default (a: number): number => a"}})
}

// Close ends the process. A closed compiler compiles nothing more.
func (r *Runs) Close() { r.lane.close() }

// compileRun answers for all modules of a run.
func compileRun(modules []protocol.Module) response {
	answer := response{Run: make([]sandbox.Module, len(modules))}
	for i, m := range modules {
		module, failed := compile.Module(m)
		if failed != nil {
			return response{Error: failed}
		}
		answer.Run[i] = module
	}
	return answer
}
