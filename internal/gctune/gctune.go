// Package gctune sets the garbage collector of a manager by the size of its heap (docs/adr/0065-finalizers-at-admission.md).
package gctune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// leastGarbage is how many bytes of garbage may gather beside a small heap before a collection. Go's own setting would be as much as is in use, and a
	// manager with little in its cache would spend more time on collections than it needs to.
	leastGarbage = 48 << 20
	// mostGarbage is how many may gather beside a large heap: one that holds 100,000 Threads, for example. Go's setting would double it.
	mostGarbage = 128 << 20
	// leastGCPercent bounds what collections cost where the heap is so large that mostGarbage is little beside it.
	leastGCPercent = 40
)

// gcPercent returns the setting of the garbage collector (GOGC) for so many bytes that a collection has found in use: the heap's, and the stacks and
// globals that it has looked through, of which the setting is a percentage too.
func gcPercent(live, others uint64) int {
	garbage := min(max(live, leastGarbage), mostGarbage)
	return max(int(garbage*100/max(live+others, 4<<20)), leastGCPercent)
}

// ByHeap sets the garbage collector from now on, after each collection, by what that has found in use. It does nothing where the environment sets
// the collector (GOGC).
func ByHeap() {
	if os.Getenv("GOGC") != "" {
		return
	}
	c := &collector{}
	c.percent.Store(100) // Go's own
	c.watch()
}

// collector has the present setting.
type collector struct{ percent atomic.Int64 }

// watch calls adjust after the next collection. The cleanup of a value that nothing refers to runs after each.
func (c *collector) watch() {
	sentinel := new([16]byte) // larger than what the runtime puts together with other values
	runtime.AddCleanup(sentinel, (*collector).adjust, c)
}

func (c *collector) adjust() {
	defer c.watch()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	var bytes [3]uint64
	for i, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return // this release of Go does not say it
		}
		bytes[i] = s.Value.Uint64()
	}
	// To set it stops all goroutines for a moment, so small differences are left alone.
	if want, is := gcPercent(bytes[0], bytes[1]+bytes[2]), int(c.percent.Load()); want*10 < is*9 || want*10 > is*11 {
		debug.SetGCPercent(want)
		c.percent.Store(int64(want))
	}
}
