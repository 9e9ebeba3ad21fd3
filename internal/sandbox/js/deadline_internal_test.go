//go:build linux && (amd64 || arm64)

package js

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// An engine that has yet to come round to the end of a request's time is not busy: only one that stays in a turn is
// stopped, with all that runs in it.
func TestGrace(t *testing.T) {
	vm, err := qjs.New()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{vm: vm, events: make(chan func() error, 1), stopped: make(chan struct{})}
		m.life, m.die = context.WithCancel(t.Context())
		defer m.die()
		i := &isolate{machine: m, wall: time.Second, deadlines: map[uint64]*deadline{}}
		stopped := func() bool {
			synctest.Wait()
			select {
			case <-m.stopped:
				return true
			default:
				return false
			}
		}

		m.turns.Store(inTurn + 1) // it waits, and nobody wakes it
		i.deadline(1)
		time.Sleep(i.wall + 10*busyGrace)
		if stopped() {
			t.Fatal("an engine that waits was stopped")
		}
		for range 10 { // it has turns, but none that tells it
			m.turns.Add(1)
			time.Sleep(busyGrace * 3 / 4)
			m.turns.Add(1)
		}
		if stopped() {
			t.Fatal("an engine that goes from turn to turn was stopped")
		}
		if err := (<-m.events)(); err != nil {
			t.Fatal(err)
		}

		m.turns.Add(1)
		i.deadline(2)
		time.Sleep(i.wall + busyGrace)
		if !stopped() {
			t.Fatal("an engine that stays in a turn was not stopped")
		}
	})
}
