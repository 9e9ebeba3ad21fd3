//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// SmallProgram is the name of the program for children whose code comes compiled. It is beside the program of the other children.
const SmallProgram = "sandbox-child"

// checkTimeout is far above the usual time of a check, a few milliseconds.
const checkTimeout = 30 * time.Second

// program is a program that is kept open: images work only in the very program that made them, and a file may be replaced.
type program struct{ file *os.File }

// programPath is where a child finds its program: it is the first descriptor that the child inherits besides its standard ones. The number
// that the program has in this process is no use to a child, since other descriptors may get it before the child executes anything.
const programPath = "/proc/self/fd/3"

// findSmall opens the small program. There is none where it is not of this release or cannot be executed, and where the children have another
// engine: they all have the supervisor's program then.
func (s *Server) findSmall() *program {
	if len(s.opts.Child) > 0 || s.otherEngine() {
		return nil
	}
	own := s.opts.Program
	if own == "" {
		var err error
		if own, err = os.Executable(); err != nil {
			return nil
		}
	}
	f, err := os.Open(filepath.Join(filepath.Dir(own), SmallProgram))
	if err != nil {
		return nil
	}
	p := &program{file: f}
	if err := s.check(p); err != nil {
		logf("%s is not used: %v", f.Name(), err)
		_ = f.Close()
		return nil
	}
	return p
}

// check returns an error if a program does not run, or not with this supervisor.
func (s *Server) check(p *program) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, programPath, append([]string{ChildArg}, js.ChildOptions{Check: true}.Args()...)...)
	cmd.Env, cmd.ExtraFiles = []string{}, []*os.File{p.file}
	var out bytes.Buffer
	cmd.Stdout = &out
	err := s.Start(cmd)
	if err == nil {
		err = s.Wait(cmd)
	}
	if err != nil {
		return fmt.Errorf("its check failed: %w", err)
	}
	if out.String() != js.Release() {
		return fmt.Errorf("it is of another release, which says %q: build both programs together", protocol.Cut(out.String(), protocol.MaxName))
	}
	return nil
}
