//go:build linux && (amd64 || arm64)

package supervisor

import (
	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// makePools makes the pools of children. They have a small program where there is one, since starting a program takes about as long as it is
// large. Its children are for one kind of execution each, because each kind begins with images of its own.
func (s *Server) makePools() []*pool {
	all := func() int { return s.opts.Prefork }
	if s.small == nil {
		return []*pool{newPool(s, 0, nil, all)}
	}
	return []*pool{
		// One of them waits until the compiler of runs has started, too: a thread may already wait for this sandbox.
		newPool(s, protocol.KindIsolate, s.small, func() int {
			if s.isWarm() {
				return s.opts.Prefork
			}
			return min(s.opts.Prefork, 1)
		}),
		// One of them waits until it turns out that there are runs.
		newPool(s, protocol.KindRun, s.small, func() int {
			if s.ran.Load() {
				return s.opts.Prefork
			}
			return min(s.opts.Prefork, 1)
		}),
	}
}

// poolOf returns the pool with children for a kind of isolate.
func (s *Server) poolOf(kind protocol.Kind) *pool {
	for _, p := range s.pools {
		if p.kind == 0 || p.kind == kind {
			return p
		}
	}
	panic("no pool for a kind of isolate")
}

// options returns the options of the pool's children. Writable memory is limited to twice what the engine may use (a growing array holds
// old and new at once) plus what the process itself needs.
func (p *pool) options() js.ChildOptions {
	next := p.kind
	if next == 0 {
		// What comes next is most likely what came last. A child that was made ready for the other kind is slower.
		next = protocol.Kind(p.server.last.Load())
	}
	most := p.server.opts.MaxMemory
	return js.ChildOptions{
		AddressSpace: uint64(4<<30 + 4*most),
		Data:         uint64(384<<20 + 3*most),
		Unconfined:   p.server.opts.AllowUnconfined,
		Kind:         p.kind,
		Compiler:     p.small == nil && next != protocol.KindIsolate,
	}
}

// full reports whether all pools have all their ready children.
func (s *Server) full() bool {
	for _, p := range s.pools {
		if !p.full() {
			return false
		}
	}
	return true
}
