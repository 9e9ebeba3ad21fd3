//go:build linux && (amd64 || arm64)

package compiler

import (
	"context"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Limits of Runs. A source that needs more is compiled by the child that runs it, within the limits of its run.
const (
	MaxRun     = 64 << 10   // bytes of all modules together
	maxRunCode = 8 * MaxRun // bytes of compiled modules and their source maps together
	runTimeout = 200 * time.Millisecond
	runWait    = time.Second
	// patience is how long a run waits for those before it.
	patience = 250 * time.Millisecond
	// warmTimeout and warmWait are for a process that starts. After one that did not, the next one may start after retryAfter.
	warmTimeout = 5 * time.Second
	warmWait    = 20 * time.Second
	retryAfter  = 5 * time.Second
)

// Runs compiles the modules of runs, in one process that stays, so that the process of a run has no compiler to start. It is for code of one
// tenant: a source may take all of the process's time, for which others wait. It is safe for concurrent use.
type Runs struct {
	lane *lane
	turn chan struct{} // has an element while nothing uses the process, once it has started for the first time
	fail func(error)
	next time.Time // when a process may start after one that did not; guarded by the turn
}

// NewRuns returns a compiler of runs. Warm starts its process. fail is called when a process does not start.
func NewRuns(o Options, fail func(error)) *Runs {
	o.Timeout, o.Wait, o.MaxAnswer = runTimeout, runWait, 8*maxRunCode
	o.complete()
	o.Command = append(o.Command[:len(o.Command):len(o.Command)], forRuns)
	return &Runs{lane: &lane{opts: o}, turn: make(chan struct{}, 1), fail: fail}
}

// Warm starts the process and lets it compile something, so that it does not build its tables while a run waits. Its caller calls it once.
func (r *Runs) Warm() {
	warm := protocol.Module{Name: "warm.ts", Form: protocol.FormTypeScript, Source: "export default (a: number): number => a"}
	if _, failed, _ := r.lane.ask(request{Run: []protocol.Module{warm}}, warmTimeout, warmWait); failed != nil && !r.lane.closed.Load() {
		r.next = time.Now().Add(retryAfter)
		r.fail(failed)
	}
	r.turn <- struct{}{}
}

// Compile compiles all modules of a run, and returns how long that took, without the time for which it waited for other runs. ok is false when a
// module has a mistake, and when the run is too much for this compiler, or would have to wait for it for long: the child
// that executes the run has a compiler then, and reports what is wrong.
func (r *Runs) Compile(ctx context.Context, modules []protocol.Module) (compiled []protocol.Module, took time.Duration, ok bool) {
	size := 0
	for _, m := range modules {
		size += len(m.Source)
	}
	if size > MaxRun || len(modules) == 0 {
		return nil, 0, false
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-r.turn:
	case <-waiting.Done():
		return nil, 0, false
	}
	if !r.lane.isAlive() {
		if time.Now().Before(r.next) {
			r.turn <- struct{}{}
		} else {
			go r.Warm() // in its own time, not in a run's
		}
		return nil, 0, false
	}
	began := time.Now()
	answer, failed, over := r.lane.ask(request{Run: modules}, runTimeout, runWait)
	took = time.Since(began)
	if failed != nil || over != inTime {
		go r.Warm()
		return nil, took, false
	}
	r.turn <- struct{}{}
	if answer.Error != nil {
		return nil, took, false
	}
	compiled = make([]protocol.Module, len(modules))
	for i, m := range answer.Run {
		compiled[i] = protocol.Module{Name: modules[i].Name, Form: protocol.FormCompiled, Source: m.Code, Map: m.SourceMap}
	}
	return compiled, took, true
}

// Close ends the process. A closed compiler compiles nothing more.
func (r *Runs) Close() { r.lane.close() }
