//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// A run comes as TypeScript. To start a process with a compiler for each of them took more than anything else about a short run, so one
// process compiles them all, before the process of a run begins (docs/adr/0080-a-program-for-definition-code.md).

// startCompiler starts the process that compiles runs.
func (s *Server) startCompiler() {
	s.runs = compiler.NewRuns(compiler.Options{
		Command: []string{s.program(), compiler.Arg},
		Env:     []string{"GOMAXPROCS=1", "GOGC=100", fmt.Sprintf("GOMEMLIMIT=%d", 64<<20)},
		Starter: s,
	})
	s.compiling = &pool{server: s, kind: protocol.KindRun}
	go s.runs.Warm()
}

// maxOpen is the size of the first frame of a run from which on the supervisor only passes it on. Most of it are arguments and other values then.
const maxOpen = 4 * compiler.MaxRun

// opening is the first frame of a stream as a child gets it.
type opening struct {
	header protocol.Header
	limits protocol.Limits
	rest   io.Reader // what follows the limits
}

// compile compiles the modules of a run and returns the pool whose children can run it. If it cannot compile them, they stay as they are, for a
// child that compiles them itself and says what is wrong with them. The time that it takes is of the run's.
func (s *Server) compile(o opening) (opening, *pool, error) {
	if o.header.Size > maxOpen {
		return o, s.compiling, nil
	}
	began := time.Now()
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
	modules, ok := s.runs.Compile(run.Modules)
	if !ok {
		return o, s.compiling, nil
	}
	run.Modules, run.Spent = modules, time.Since(began)
	b, err := run.Encode()
	if err != nil {
		return o, s.compiling, nil
	}
	o.header.Size, o.rest = len(b), bytes.NewReader(b[protocol.LimitsSize:])
	return o, s.poolOf(protocol.KindRun), nil
}
