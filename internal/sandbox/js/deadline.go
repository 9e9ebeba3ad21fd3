//go:build linux && (amd64 || arm64)

package js

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
)

// deadline limits the time of one request to an isolate.
type deadline struct {
	task *task // what the request waits for now
	soft *time.Timer
	hard *time.Timer
	over atomic.Bool // whether the engine has been between two turns since the end of the time
}

// Limits on how far code may exceed a deadline.
const (
	// busyGrace is how long the engine may stay in one turn before it is stopped. Code that awaits is between two
	// turns, so that only its own request fails. Code that loops ends the whole isolate. On a busy machine the engine
	// may reach its next turn later than that; this is no reason to stop it.
	busyGrace = 100 * time.Millisecond
	// maxLooks bounds how often the check may find that the engine has yet to handle the end of a request's time.
	maxLooks = 10
	// stopGrace is how long the engine may take to stop. What cannot be interrupted is ended with the process.
	stopGrace = 150 * time.Millisecond
)

// deadline starts the clock of a request.
func (i *isolate) deadline(id uint64) *deadline {
	d := &deadline{}
	if i.wall <= 0 {
		return d
	}
	reason := fmt.Sprintf("the code ran for longer than %s, its limit", i.wall)
	d.soft = i.after(i.late, i.wall, func() error {
		d.over.Store(true)
		if d.task == nil {
			return nil
		}
		i.drop(d.task)
		return i.answer(id, failure("TimeoutError", "%s", reason))
	})
	d.hard = time.AfterFunc(i.wall, func() { i.grace(d, reason, maxLooks) })
	i.deadlines[id] = d
	return d
}

// grace stops the engine if it stays in one turn from now on, or has not handled the deadline after that many checks.
// The grace period begins when the end of the time is noticed, because a process that was suspended until then has
// not been busy.
func (i *isolate) grace(d *deadline, reason string, looks int) {
	turn := i.turns.Load()
	time.AfterFunc(busyGrace, func() {
		switch {
		case d.over.Load() || i.life.Err() != nil:
		case turn%2 == inTurn && i.turns.Load() == turn, looks == 1:
			i.stop(reason)
			// The supervisor kills a child that has sent its last frame.
			time.AfterFunc(stopGrace, func() { _ = i.done(sandbox.StatusTerminated, failure("Terminated", "%s", reason)) })
		default: // the engine is about to handle it
			i.grace(d, reason, looks-1)
		}
	})
}

// clear stops the clock of a request.
func (i *isolate) clear(id uint64) {
	if d, ok := i.deadlines[id]; ok {
		delete(i.deadlines, id)
		d.soft.Stop()
		d.hard.Stop()
		d.over.Store(true)
		d.task = nil
	}
}
