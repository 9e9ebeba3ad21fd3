//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// maxLibraries limits the bytecode and the images of the libraries.
const maxLibraries = 32 << 20

// compileTimeout is far above the usual time on any node, because without the bytecode every child is slower.
const compileTimeout = 2 * time.Minute

// prepareLibraries lets a fresh child, which never saw foreign code, compile the libraries and make images of engines
// that have them loaded. It keeps both in a sealed file in memory that all children share. Without it children compile for themselves. The ready children
// start first, because a thread may already wait for this sandbox.
func (s *Server) prepareLibraries() {
	defer close(s.libsDone)
	if s.opts.Engine != sandbox.QuickJS {
		return // the other engine loads them in another way
	}
	select {
	case <-s.pool.filled:
	case <-s.ctx.Done():
		return
	}
	f, err := s.compileLibraries()
	if err != nil {
		if s.ctx.Err() == nil {
			logf("compiling the libraries: %v", err)
		}
		return
	}
	s.libs.Store(f)
}

func (s *Server) libraries() *os.File { return s.libs.Load() }

func (s *Server) compileLibraries() (*os.File, error) {
	o := s.childOptions()
	o.CompileLibraries = true
	p, err := s.launch(s.child(o, nil))
	if err != nil {
		return nil, err
	}
	defer p.dispose()
	ctx, cancel := context.WithTimeout(s.ctx, compileTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { p.kill(protocol.Gone{}) })()
	code, err := io.ReadAll(io.LimitReader(p.out, maxLibraries+1))
	if err != nil {
		return nil, err
	}
	if err := p.wait(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, p.stderr.String())
	}
	if told := p.stderr.String(); told != "" {
		logf("compiling the libraries: %s", told)
	}
	if len(code) == 0 || len(code) > maxLibraries {
		return nil, fmt.Errorf("%d bytes of bytecode", len(code))
	}
	return sealed("skein-libraries", code)
}

// sealed returns a file in memory that cannot be changed any more.
func sealed(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
