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

// prepareLibraries lets a fresh child of each pool, which never saw foreign code, compile the libraries and make images of engines
// that have them loaded. The pool keeps both in a sealed file in memory that all its children share. Without it children compile for
// themselves. The ready children and the compiler of runs start first, because a thread may already wait for this sandbox.
func (s *Server) prepareLibraries() {
	defer close(s.prepared)
	go func() {
		defer close(s.warm)
		if s.runs != nil {
			s.runs.Warm()
		}
	}()
	for _, p := range s.pools {
		select {
		case <-p.filled:
		case <-s.ctx.Done():
		}
	}
	<-s.warm
	for _, p := range s.pools {
		p.allowRefill()
	}
	for _, p := range s.pools {
		p.prepareLibraries()
	}
}

func (p *pool) prepareLibraries() {
	defer close(p.compiled)
	if p.server.opts.Engine != sandbox.QuickJS || p.server.ctx.Err() != nil {
		return // the other engine loads them in another way
	}
	f, err := p.compileLibraries()
	if err != nil {
		if p.server.ctx.Err() == nil {
			logf("compiling the libraries: %v", err)
		}
		return
	}
	p.libs.Store(f)
}

func (p *pool) compileLibraries() (*os.File, error) {
	o := p.options()
	o.CompileLibraries, o.Compiler = true, false
	child, err := p.server.launch(p.command(o, nil))
	if err != nil {
		return nil, err
	}
	defer child.dispose()
	ctx, cancel := context.WithTimeout(p.server.ctx, compileTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { child.kill(protocol.Gone{}) })()
	code, err := io.ReadAll(io.LimitReader(child.out, maxLibraries+1))
	if err != nil {
		return nil, err
	}
	if err := child.wait(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, child.stderr.String())
	}
	if output := child.stderr.String(); output != "" {
		logf("compiling the libraries: %s", output)
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
