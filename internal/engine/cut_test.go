package engine_test

import (
	"maps"
	"sync"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
)

// cutter cuts an engine off its store, as SIGKILL would, when it comes to a fault point for the n-th time.
type cutter struct {
	world *enginetest.World
	gate  *enginetest.Gate
	point string
	n     int
	cut   chan struct{} // closed by then

	mu     sync.Mutex
	points map[string]int // how often each was come to
}

// cutAt makes a cutter; with no point it cuts nothing, and counts.
func cutAt(w *enginetest.World, point string, n int) *cutter {
	return &cutter{world: w, gate: &enginetest.Gate{Store: w.Store}, point: point, n: n, cut: make(chan struct{}), points: map[string]int{}}
}

// options of the engine that is cut off.
func (c *cutter) options(o *engine.Options) {
	o.Threads = c.world.Over(c.gate)
	o.Faults = func(p string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.gate.IsCut() {
			panic("dead")
		}
		if c.points[p]++; p == c.point && c.points[p] == c.n {
			c.gate.Cut()
			close(c.cut)
			panic("crash")
		}
	}
}

// reached tells how often each point was come to.
func (c *cutter) reached() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.points)
}
