// Package deltas streams answers under way into the log, for those who watch a thread.
package deltas

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
	// deltaBytes is how many bytes may wait. More are written before the interval is over.
	deltaBytes = 4 << 10
)

// Stream streams an answer under way into the log, in batches. If an answer is complete within the first interval, nothing
// is written: its message follows at once and has everything.
//
// The goroutine of the model call and the timer's goroutine share it. mu guards the fields below it.
type Stream struct {
	ctx   context.Context
	opts  Options
	msgID string

	mu        sync.Mutex
	text      strings.Builder
	reasoning strings.Builder
	reset     bool
	written   bool
	known     int64 // see New
	timer     clock.Timer
	stopped   bool
	err       error // the run must not continue, because its lease or its thread is lost
}

// Options of a Stream.
type Options struct {
	Store store.Store
	Clock clock.WithDelayedExecution
	Fence *store.Fence
	Run   *store.Run
	// Fault marks a point around a write, for crash tests.
	Fault func(point string)
}

type deltaData struct {
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	// Reset withdraws all pieces of this message so far, because the model call is repeated.
	Reset bool `json:"reset,omitempty"`
}

// New returns the stream of the answer msgID. known is the sequence number up to which the run knows its thread, or 0.
func New(ctx context.Context, o Options, msgID string, known int64) *Stream {
	return &Stream{ctx: ctx, opts: o, msgID: msgID, known: known}
}

// fault marks a point around a write, for crash tests.
func (d *Stream) fault(point string) { d.opts.Fault(point) }

// Emit adds one piece.
func (d *Stream) Emit(p model.Delta) {
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
		d.timer = d.opts.Clock.AfterFunc(deltaInterval, d.tick)
	}
}

// tick writes what has come in an interval. The next Emit starts the next interval.
func (d *Stream) tick() {
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
func (d *Stream) flush() {
	data := deltaData{Text: strings.ToValidUTF8(d.text.String(), ""), Reasoning: strings.ToValidUTF8(d.reasoning.String(), ""), Reset: d.reset}
	if data == (deltaData{}) || d.err != nil {
		return
	}
	raw, _ := json.Marshal(data) // strings only: cannot fail
	d.fault("delta.before")
	mark := &store.Mark{}
	err := d.opts.Store.Apply(d.ctx, d.opts.Run.ThreadID, d.opts.Fence, &store.AppendEvent{Event: store.Event{
		Type: store.EventDelta, RunID: d.opts.Run.ID, MessageID: d.msgID, Data: raw,
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
	d.fault("delta.after")
}

// Stop ends the streaming. Pieces that are not written yet are dropped: the message itself has them. Stop returns the sequence number up to
// which the run knows its thread, or 0, and an error if the run must not continue.
func (d *Stream) Stop() (known int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
	return d.known, d.err
}
