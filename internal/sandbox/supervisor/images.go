//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// imagesTimeout is far above the usual time on any node, because without the images every child is slower.
const imagesTimeout = 2 * time.Minute

// sealRetry is the pause before a file that is still mapped is sealed again.
const sealRetry = 10 * time.Millisecond

// prepareImages lets a fresh child of each pool, which never saw foreign code, make images of engines that have the libraries loaded. They are in
// a sealed file in memory that all children of the pool share. Without it children make their engines themselves. The ready children and the
// compiler of runs start first, because a thread may already wait for this sandbox.
func (s *Server) prepareImages() {
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
		p.prepareImages()
	}
}

func (p *pool) prepareImages() {
	defer close(p.prepared)
	if p.server.opts.Engine != sandbox.QuickJS || p.server.ctx.Err() != nil {
		return // the other engine loads libraries in another way
	}
	f, err := p.makeImages()
	if err != nil {
		if p.server.ctx.Err() == nil {
			logf("making images of engines: %v", err)
		}
		return
	}
	p.images.Store(f)
}

// makeImages returns the file with the images for the children of the pool.
func (p *pool) makeImages() (*os.File, error) {
	f, err := newImagesFile()
	if err != nil {
		return nil, err
	}
	if err := p.makeImagesIn(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (p *pool) makeImagesIn(f *os.File) error {
	o := p.options()
	o.MakeImages, o.Compiler = true, false
	child, err := p.server.launch(p.command(o, f))
	if err != nil {
		return err
	}
	defer child.dispose()
	ctx, cancel := context.WithTimeout(p.server.ctx, imagesTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { child.kill(protocol.Gone{}) })()
	if err := child.wait(); err != nil {
		return fmt.Errorf("%w: %s", err, child.stderr.String())
	}
	for {
		// Whoever reads about the child in /proc just now keeps its memory for a moment, and with it the mapping of the file.
		err := seal(f, unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-time.After(sealRetry):
		case <-ctx.Done():
			return err
		}
	}
}

// newImagesFile returns an empty file in memory of the size that the images need at most.
func newImagesFile() (*os.File, error) {
	const name = "skein-images"
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	err = f.Truncate(js.ImagesSize)
	if err == nil {
		err = seal(f, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// seal keeps a file in memory from changes, also by those who have it open.
func seal(f *os.File, seals int) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("sealing %s: %w", f.Name(), err)
	}
	return nil
}
