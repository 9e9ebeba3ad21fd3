//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// SmallProgram is the name of the program for children that run definition code. It is beside the program of the other children.
const SmallProgram = "sandbox-child"

// checkTimeout is far above the usual time of a check, a few milliseconds.
const checkTimeout = 30 * time.Second

// program is a program that is kept open: images work only in the very program that made them, and a file may be replaced.
type program struct{ file *os.File }

// path returns a path at which this process and its children find the program.
func (p *program) path() string { return fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()) }

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
	f, err := openHigh(filepath.Join(filepath.Dir(own), SmallProgram))
	if err != nil {
		return nil
	}
	p := &program{file: f}
	if err := p.check(); err != nil {
		logf("%s is not used: %v", f.Name(), err)
		_ = f.Close()
		return nil
	}
	return p
}

// firstHigh is above the descriptors that a child gets. They are put in place before it executes its program, which must not be one of them.
const firstHigh = 64

// openHigh opens a file with a descriptor from firstHigh on.
func openHigh(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, firstHigh)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// check returns an error if the program does not run, or not with this supervisor.
func (p *program) check() error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path(), append([]string{ChildArg}, js.ChildOptions{Check: true}.Args()...)...)
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("its check failed: %w", err)
	}
	if string(out) != protocol.Versions() {
		return fmt.Errorf("it is of another release, with the protocol versions %q: build both programs together", protocol.Cut(string(out), protocol.MaxName))
	}
	return nil
}
