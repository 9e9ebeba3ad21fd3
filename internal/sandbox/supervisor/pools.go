//go:build linux && (amd64 || arm64)

package supervisor

import (
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// makePools makes the pools of children. Those for definition code have a small program where there is one, since starting a program takes
// about as long as it is large. As the small one has no compiler, runs have children of their own then.
func (s *Server) makePools() []*pool {
	all := func() int { return s.opts.Prefork }
	if s.small == nil {
		return []*pool{newPool(s, 0, nil, all)}
	}
	return []*pool{
		newPool(s, protocol.KindIsolate, s.small, all),
		// One of them waits until it turns out that there are runs.
		newPool(s, protocol.KindRun, nil, func() int {
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

// full reports whether all pools have all their ready children.
func (s *Server) full() bool {
	for _, p := range s.pools {
		if !p.full() {
			return false
		}
	}
	return true
}
