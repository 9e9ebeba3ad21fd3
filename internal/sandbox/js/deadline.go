//go:build linux && (amd64 || arm64)

package js

import (
	"fmt"
	"sync/atomic"
	"time"
)

// deadline bounds the time of one request to an isolate.
type deadline struct {
	task *task // what the request waits for now
	soft *time.Timer
	hard *time.Timer
	over atomic.Bool // the engine was between two turns since
}

// busyGrace is how long the engine may be busy past a deadline before it is stopped: code that awaits is
// between two turns by then, so only its own request fails; code that loops takes the isolate with it.
const busyGrace = 100 * time.Millisecond

// deadline starts the clock of a request.
func (i *isolate) deadline(id uint64) *deadline {
	d := &deadline{}
	if i.wall <= 0 {
		return d
	}
	reason := fmt.Sprintf("the code ran for longer than %s, its limit", i.wall)
	d.soft = i.after(i.wall, func() error {
		d.over.Store(true)
		if d.task == nil {
			return nil
		}
		i.drop(d.task)
		return i.answer(id, failure("TimeoutError", "%s", reason))
	})
	// The grace begins when the time is seen to be up: a process that stood still meanwhile has not been busy.
	d.hard = time.AfterFunc(i.wall, func() {
		time.AfterFunc(busyGrace, func() {
			if !d.over.Load() {
				i.stop(reason)
			}
		})
	})
	i.deadlines[id] = d
	return d
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
