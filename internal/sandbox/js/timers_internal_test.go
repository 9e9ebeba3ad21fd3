//go:build linux && (amd64 || arm64)

package js

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// TestLateTimersHaveOneEvent lets many intervals be late: each turn may leave no more events than there are timers.
func TestLateTimersHaveOneEvent(t *testing.T) {
	vm, err := qjs.New()
	if err != nil {
		t.Fatal(err)
	}
	f, ok := vm.Eval("f.js", "() => 0")
	if !ok {
		t.Fatal(vm.Inspect(vm.Exception()))
	}
	synctest.Test(t, func(t *testing.T) {
		const timers, turns = 50, 2000
		i := &isolate{machine: &machine{vm: vm, events: make(chan func() error, 10*turns), stopped: make(chan struct{}), timers: map[int32]*timer{}}}
		for id := range int32(timers) {
			i.timers[id] = &timer{f: vm.Dup(f), repeat: minInterval}
			i.arm(id, i.timers[id], minInterval)
		}
		for range turns {
			time.Sleep(2 * minInterval) // each turn takes so long that all timers are due again
			synctest.Wait()
			if n := len(i.events); n == 0 || n > timers {
				t.Fatalf("%d events of %d timers wait", n, timers)
			}
			if err := (<-i.events)(); err != nil {
				t.Fatal(err)
			}
		}
		for id := range int32(timers) {
			i.endTimer(id)
		}
	})
}
