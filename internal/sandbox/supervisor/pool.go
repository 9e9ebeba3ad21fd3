//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// pool keeps children ready: locked down, with an engine, waiting for the one Open of their life.
type pool struct {
	server *Server
	kind   protocol.Kind // the only kind of isolate that its children are for; 0 means any
	small  *program      // theirs, if it is not the supervisor's own
	size   func() int    // how many are to be ready

	images   atomic.Pointer[os.File] // what makeImages made
	prepared chan struct{}           // closed when images is set, or will not be

	ready  chan *process
	refill chan struct{}
	done   chan struct{}
	ended  chan struct{}
	// renewed is closed when the ready children have the images that were made after they started.
	renewed chan struct{}

	filled   chan struct{} // closed when as many children as are to be ready have started
	starting atomic.Bool   // whether a ready child is being started
	awaited  atomic.Bool   // whether a stream waits for that child
	calm     atomic.Pointer[time.Time]
}

func newPool(s *Server, kind protocol.Kind, small *program, size func() int) *pool {
	p := &pool{
		server: s, kind: kind, small: small, size: size, prepared: make(chan struct{}),

		ready:  make(chan *process, max(s.opts.Prefork, 1)),
		refill: make(chan struct{}, 1),
		done:   make(chan struct{}),
		ended:  make(chan struct{}),

		renewed: make(chan struct{}),
		filled:  make(chan struct{}),
	}
	go p.keep()
	return p
}

// retry is the pause after a child that did not start.
const retry = 200 * time.Millisecond

// keep keeps the pool full until it is closed. Once the images are made, it replaces the children that started without them.
func (p *pool) keep() {
	defer close(p.ended)
	prepared := p.prepared
	filled := sync.OnceFunc(func() { close(p.filled) })
	started := 0
	for {
		for len(p.ready) < p.size() {
			p.starting.Store(true)
			child, err := p.spawn()
			p.starting.Store(false)
			if err != nil {
				logf("%v", err)
				if !p.pause(retry) {
					return
				}
				continue
			}
			select {
			case p.ready <- child:
				// As long as there is work, children are taken as soon as they start. The images are made meanwhile.
				if started++; started >= p.size() {
					filled()
				}
			case <-p.done:
				child.dispose()
				return
			}
		}
		filled()
		select {
		case <-p.refill:
		case <-prepared:
			prepared = nil
			p.renew()
			close(p.renewed)
		case <-p.done:
			return
		}
	}
}

// renew replaces the children that started before there were images for them. A sandbox waits long for its first
// code, which should not run in a child that loads the libraries itself.
func (p *pool) renew() {
	if p.images.Load() == nil {
		return
	}
	for range p.size() {
		child, err := p.spawn()
		if err != nil {
			logf("%v", err)
			return
		}
		select {
		case old := <-p.ready:
			if old.images { // it started after they were made
				old, child = child, old
			}
			p.ready <- child // there is a free place, because only this goroutine adds children
			old.dispose()
		default:
			child.dispose()
			return // they are in use, and others will start soon
		}
	}
}

func (p *pool) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-p.done:
		return false
	}
}

// awaitStart is how long to wait for a child that is being started. Starting takes a few milliseconds.
const awaitStart = 50 * time.Millisecond

// take returns a ready child, else the one that is being started, else it starts one. Starting two at once takes
// longer than one, and the second would come too late.
func (p *pool) take(ctx context.Context) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case child := <-p.ready:
		return child, nil
	default:
	}
	if p.starting.Load() && p.awaited.CompareAndSwap(false, true) {
		defer p.awaited.Store(false)
		select {
		case child := <-p.ready:
			return child, nil
		case <-time.After(awaitStart):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return p.spawn()
}

// calmFor keeps the pool from refilling for a while, as long as a child is ready.
func (p *pool) calmFor(d time.Duration) {
	until := time.Now().Add(d)
	p.calm.Store(&until)
	time.AfterFunc(d, p.allowRefill)
}

// allowRefill allows the pool to refill. A run calls it when it is over, or has run for a while: starting the next child
// at once would take processor time from the run.
func (p *pool) allowRefill() {
	if until := p.calm.Load(); until != nil && len(p.ready) > 0 && time.Now().Before(*until) {
		return // it is called again after that time
	}
	select {
	case p.refill <- struct{}{}:
	default:
	}
}

// full reports whether the pool has all its ready children.
func (p *pool) full() bool { return len(p.ready) >= p.size() }

func (p *pool) close() {
	close(p.done)
	<-p.ended
	if f := p.images.Load(); f != nil {
		defer func() { _ = f.Close() }()
	}
	for {
		select {
		case child := <-p.ready:
			child.dispose()
		default:
			return
		}
	}
}
