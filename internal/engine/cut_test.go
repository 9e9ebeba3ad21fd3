package engine_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/thread"
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

// restOrCut waits until a thread rests or the engine is cut off. Then it stops the engine and ends its leases.
func (c *cutter) restOrCut(ctx context.Context, id string, stop func()) {
	GinkgoHelper()
	for ctx.Err() == nil && !c.gate.IsCut() {
		if rested, err := c.world.Resting(ctx, id); err == nil && rested {
			break
		}
		pause(ctx, 2*time.Millisecond)
	}
	stop()
	Expect(c.gate.Expire(ctx)).To(Succeed())
}

// reached tells how often each point was come to.
func (c *cutter) reached() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.points)
}

// playsAtOnce bounds the plays that are under way at once. Each is more waiting than work.
const playsAtOnce = 4

// atEachPoint plays once for every visit to a point that is to be crashed at, some side by side. The first play that fails is the last to begin.
func atEachPoint(points map[string]int, visits func(count int) []int, play func(point string, n int)) {
	type visit struct {
		point string
		n     int
	}
	var all []visit
	for point, count := range points {
		for _, n := range visits(count) {
			all = append(all, visit{point, n})
		}
	}
	var next atomic.Int64
	var failed atomic.Bool
	var players sync.WaitGroup
	for range playsAtOnce {
		players.Go(func() {
			defer GinkgoRecover()
			done := false
			defer func() {
				if !done {
					failed.Store(true)
				}
			}()
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					break
				}
				play(all[i].point, all[i].n)
			}
			done = true
		})
	}
	players.Wait()
}

// each visit to a point.
func each(count int) (visits []int) {
	for n := 1; n <= count; n++ {
		visits = append(visits, n)
	}
	return visits
}

// firstMiddleLast are the visits to a point that many threads come to.
func firstMiddleLast(count int) []int { return slices.Compact([]int{1, (count + 1) / 2, count}) }

// seat is the ids of the threads with code of one play. A thread has the sandbox of the thread by its id in the world before, as it
// would have after its manager was killed: a process that need not be started for every play.
type seat struct{ first, second string }

// newSeats gives one for each play at a time.
func newSeats() chan seat {
	seats := make(chan seat, playsAtOnce)
	for range playsAtOnce {
		seats <- seat{uuid.NewString(), uuid.NewString()}
	}
	return seats
}

// withID gives a new thread an id.
func withID(id string) func(*thread.NewThread) { return func(n *thread.NewThread) { n.ID = id } }
