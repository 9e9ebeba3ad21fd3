//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// A run comes as TypeScript. To start a process with a compiler for each of them took more than anything else about a short run, so one
// process compiles them all, before the process of a run begins (docs/adr/0080-a-program-for-definition-code.md).

// addCompiler adds the compiler of runs. Its process starts along with the first ready children.
func (s *Server) addCompiler() {
	s.runs = compiler.NewRuns(compiler.Options{
		Command: []string{s.program(), compiler.Arg},
		Env:     []string{"GOMAXPROCS=1", "GOGC=100", fmt.Sprintf("GOMEMLIMIT=%d", 24<<20)},
		Starter: s,
	}, func(err error) { logf("runs are not compiled ahead: %v", err) })
	s.compiling = &pool{server: s, kind: protocol.KindRun}
}

// isWarm reports whether the compiler of runs is ready, or there is none.
func (s *Server) isWarm() bool {
	select {
	case <-s.warm:
		return true
	default:
		return false
	}
}

// maxOpen is the size up to which the first frame of a run is read. A larger one, most of which are arguments and other values, is only passed on.
const maxOpen = 4 * compiler.MaxRun

// opening is the first frame of a stream as a child gets it.
type opening struct {
	header protocol.Header
	limits protocol.Limits
	rest   io.Reader     // what follows the limits
	spent  time.Duration // what a run has used of its wall time
}

// compile compiles the modules of a run and returns the pool whose children can run it. If it cannot compile them, they stay as they are, for a
// child that compiles them itself and says what is wrong with them. The time for that counts as time of the run.
func (s *Server) compile(ctx context.Context, o opening) (opening, *pool, error) {
	if o.header.Size > maxOpen {
		return o, s.compiling, nil
	}
	whole := o.limits.Append(make([]byte, 0, o.header.Size))
	whole = whole[:o.header.Size]
	if _, err := io.ReadFull(o.rest, whole[protocol.LimitsSize:]); err != nil {
		return o, nil, err
	}
	o.rest = bytes.NewReader(whole[protocol.LimitsSize:])
	run, err := protocol.ParseOpen(whole)
	if err != nil {
		return o, s.compiling, nil // which refuses it
	}
	modules, took, ok := s.runs.Compile(ctx, run.Modules)
	pool := s.compiling
	if ok {
		run.Modules, pool = modules, s.poolOf(protocol.KindRun)
	}
	run.Spent = took
	b, err := run.Encode()
	if err != nil {
		return o, s.compiling, nil
	}
	o.header.Size, o.rest, o.spent = len(b), bytes.NewReader(b[protocol.LimitsSize:]), took
	return o, pool, nil
}
