//go:build linux && (amd64 || arm64)

package js

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// graceTest is an isolate at the start of a request, in its own synctest bubble. The test acts as its engine.
type graceTest struct {
	*testing.T
	*isolate
	said *bytes.Buffer
}

func inGrace(t *testing.T, f func(graceTest)) {
	t.Helper()
	vm, err := qjs.New()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	synctest.Test(t, func(t *testing.T) {
		said := &bytes.Buffer{}
		m := &machine{vm: vm, conn: protocol.NewConn(nil, said, nil), late: make(chan func() error, 1), stopped: make(chan struct{})}
		m.life, m.die = context.WithCancel(t.Context())
		defer m.die()
		i := &isolate{machine: m, wall: time.Second, deadlines: map[uint64]*deadline{}}
		f(graceTest{t, i, said})
	})
}

func (g graceTest) isStopped() bool {
	synctest.Wait()
	select {
	case <-g.stopped:
		return true
	default:
		return false
	}
}

// hop moves from turn to turn for a number of checks.
func (g graceTest) hop(looks int) {
	for range looks {
		time.Sleep(busyGrace / 2)
		g.turns.Add(2)
		time.Sleep(busyGrace - busyGrace/2)
	}
}

// An engine that has yet to handle the end of a request's time is not busy. Only one that stays in a turn is stopped,
// with everything that runs in it.
func TestGrace(t *testing.T) {
	inGrace(t, func(g graceTest) {
		g.turns.Store(inTurn + 1) // it waits, and nothing wakes it
		g.deadline(1)
		time.Sleep(g.wall + 3*busyGrace)
		if g.isStopped() {
			t.Fatal("an engine that waits was stopped")
		}
		g.turns.Add(1)
		g.hop(maxLooks - 4) // it has turns, but none that handles the deadline
		if g.isStopped() {
			t.Fatal("an engine that goes from turn to turn was stopped")
		}
		if err := (<-g.late)(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * busyGrace)
		if g.isStopped() {
			t.Fatal("an engine that was told was stopped")
		}
		g.deadline(2)
		time.Sleep(g.wall + busyGrace)
		if !g.isStopped() {
			t.Fatal("an engine that stays in a turn was not stopped")
		}
	})
}

func TestGraceEnds(t *testing.T) {
	inGrace(t, func(g graceTest) {
		g.deadline(1)
		time.Sleep(g.wall)
		g.hop(maxLooks)
		if !g.isStopped() {
			t.Fatal("an engine that is never told may go on")
		}
	})
}

// A built-in that does not check for a stop ends with its process.
func TestGraceOfWhatDoesNotStop(t *testing.T) {
	inGrace(t, func(g graceTest) {
		g.deadline(1)
		time.Sleep(g.wall + busyGrace)
		if !g.isStopped() || g.said.Len() > 0 {
			t.Fatal("it has the time to say so itself")
		}
		time.Sleep(stopGrace)
		synctest.Wait()
		typ, content, err := protocol.NewConn(g.said, nil, nil).Read()
		if err != nil || typ != protocol.TypeDone {
			t.Fatalf("the supervisor is not told to kill it: frame %d, %v", typ, err)
		}
		if d, err := protocol.ParseDone(content); err != nil || d.Status != sandbox.StatusTerminated {
			t.Fatalf("%+v, %v", d, err)
		}
	})
}

// However much waits before it, the next turn handles the deadline.
func TestDeadlinesComeFirst(t *testing.T) {
	m := &machine{events: make(chan func() error, 100), late: make(chan func() error, 100), stopped: make(chan struct{})}
	var order []string
	for range cap(m.late) {
		m.events <- func() error { order = append(order, "timer"); return nil }
		m.late <- func() error { order = append(order, "deadline"); return nil }
	}
	for k := range 2 * cap(m.late) {
		if err := m.wait(nil); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "deadline", false: "timer"}[k < cap(m.late)]; order[k] != want {
			t.Fatalf("a %s came as number %d", order[k], k)
		}
		if m.turns.Load()%2 != inTurn {
			t.Fatal("it takes the turn for a wait")
		}
	}
}
