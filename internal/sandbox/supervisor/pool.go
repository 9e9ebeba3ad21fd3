//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"time"
)

// pool keeps children ready: locked down, with an engine, waiting for the one Open of their life.
type pool struct {
	server *Server
	ready  chan *process
	refill chan struct{}
	done   chan struct{}
	ended  chan struct{}
	// renewed is closed when the children that wait have what was compiled after they started.
	renewed chan struct{}
}

func newPool(s *Server) *pool {
	p := &pool{
		server: s,
		ready:  make(chan *process, max(s.opts.Prefork, 1)),
		refill: make(chan struct{}, 1),
		done:   make(chan struct{}),
		ended:  make(chan struct{}),

		renewed: make(chan struct{}),
	}
	go p.keep()
	return p
}

// retry is how long to wait after a child that did not start.
const retry = 200 * time.Millisecond

// keep fills the pool whenever it is told to.
func (p *pool) keep() {
	defer close(p.ended)
	compiled := p.server.libsDone
	for {
		for len(p.ready) < p.server.opts.Prefork {
			child, err := p.server.spawn()
			if err != nil {
				logf("%v", err)
				if !p.pause(retry) {
					return
				}
				continue
			}
			select {
			case p.ready <- child:
			case <-p.done:
				child.dispose()
				return
			}
		}
		select {
		case <-p.refill:
		case <-compiled:
			compiled = nil
			p.renew()
			close(p.renewed)
		case <-p.done:
			return
		}
	}
}

// renew replaces the children that started before there were libraries for them: a sandbox waits long for its first
// code, which should not be the one that compiles for itself.
func (p *pool) renew() {
	if p.server.libraries() == nil {
		return
	}
	for range p.server.opts.Prefork {
		child, err := p.server.spawn()
		if err != nil {
			logf("%v", err)
			return
		}
		select {
		case old := <-p.ready:
			if old.libraries { // of the newest
				old, child = child, old
			}
			p.ready <- child // there is room: nobody else puts any in
			old.dispose()
		default:
			child.dispose()
			return // they are in use, and others are about to start
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

// take gives a ready child, or starts one when none is.
func (p *pool) take(ctx context.Context) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case child := <-p.ready:
		return child, nil
	default:
		return p.server.spawn()
	}
}

// wanted says that the pool may fill up again. A run calls it when it is over, or has run for a while: starting
// the next child at once would take the processor from the run.
func (p *pool) wanted() {
	select {
	case p.refill <- struct{}{}:
	default:
	}
}

// full says whether the pool has what it is meant to have.
func (p *pool) full() bool { return len(p.ready) >= p.server.opts.Prefork }

func (p *pool) close() {
	close(p.done)
	<-p.ended
	for {
		select {
		case child := <-p.ready:
			child.dispose()
		default:
			return
		}
	}
}
