package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// deltaInterval is the shortest time between two writes of pieces of an answer under way.
	deltaInterval = 50 * time.Millisecond
	// deltaBytes is how much may wait until it is written without waiting for the interval.
	deltaBytes = 4 << 10
)

// deltas streams an answer under way into the log, in batches. If an answer is complete within the first interval, nothing
// is written: its message follows at once and has everything.
//
// The goroutine of the model call and the timer's goroutine share it. mu guards the fields below it.
type deltas struct {
	ctx   context.Context
	run   *run
	msgID string

	mu        sync.Mutex
	text      strings.Builder
	reasoning strings.Builder
	reset     bool
	written   bool
	known     int64 // see run.known
	timer     clock.Timer
	stopped   bool
	err       error // the run must not continue, because its lease or its thread is lost
}

type deltaData struct {
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	// Reset withdraws all pieces of this message so far, because the model call is repeated.
	Reset bool `json:"reset,omitempty"`
}

func newDeltas(ctx context.Context, r *run, msgID string) *deltas {
	return &deltas{ctx: ctx, run: r, msgID: msgID, known: r.known}
}

// emit adds one piece.
func (d *deltas) emit(p model.Delta) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.Reset {
		d.text.Reset()
		d.reasoning.Reset()
		d.reset = d.written
		return
	}
	d.text.WriteString(p.Text)
	d.reasoning.WriteString(p.Reasoning)
	if d.text.Len()+d.reasoning.Len() >= deltaBytes {
		d.flush()
	}
	if d.timer == nil && !d.stopped {
		d.timer = d.run.engine.opts.Clock.AfterFunc(deltaInterval, d.tick)
	}
}

// tick writes what has come in an interval. The next emit starts the next interval.
func (d *deltas) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { // nothing else on this goroutine would recover a panic
		if p := recover(); p != nil {
			d.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	d.timer = nil
	if !d.stopped {
		d.flush()
	}
}

// flush writes the pieces that wait. The caller holds mu, so further pieces wait, and the stream gets no faster than the
// store.
func (d *deltas) flush() {
	data := deltaData{Text: strings.ToValidUTF8(d.text.String(), ""), Reasoning: strings.ToValidUTF8(d.reasoning.String(), ""), Reset: d.reset}
	if data == (deltaData{}) || d.err != nil {
		return
	}
	raw, _ := json.Marshal(data) // strings only: cannot fail
	d.run.engine.fault("delta.before")
	mark := &store.Mark{}
	err := d.run.engine.store.Apply(d.ctx, d.run.Thread.ID, d.run.fence, &store.AppendEvent{Event: store.Event{
		Type: store.EventDelta, RunID: d.run.record.ID, MessageID: d.msgID, Data: raw,
	}}, mark)
	if err == nil && d.known == mark.Before {
		d.known = mark.After
	} else {
		d.known = 0
	}
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrNotFound) {
		d.err = err
		return
	}
	// After any other failure watchers miss a piece until they get the message itself.
	d.text.Reset()
	d.reasoning.Reset()
	d.reset, d.written = false, true
	d.run.engine.fault("delta.after")
}

// stop ends the streaming. It returns an error if the run must not continue.
func (d *deltas) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.run.known = d.known
	return d.err
}
