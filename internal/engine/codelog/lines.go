// Package codelog writes what the code of a thread logs into the thread's log: in batches, bounded, and without secrets.
package codelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/store"
)

// Bounds of the lines that code may write to a thread's log.
const (
	// MaxLine bounds the text of a line, in bytes.
	MaxLine = 8 << 10
	// MaxRunLines and MaxRunBytes bound the lines of a run, or of a call outside of one.
	MaxRunLines = 1000
	MaxRunBytes = 1 << 20
	// MaxThreadLines bounds the lines that a thread keeps: the oldest are dropped.
	MaxThreadLines = 5000
	// linesInterval is how long a line waits for others before they are written together.
	linesInterval = 50 * time.Millisecond
	// linesTimeout bounds how long the code's caller waits for lines to be written.
	linesTimeout = 5 * time.Second
)

// Lines collects the lines that code of one run logs, or of one call outside of a run, and writes them in batches. Code never waits for
// a line, and the log takes no more than the bounds allow. Secrets are removed. Lines that cannot be written are lost, since that is no
// reason to fail a run. A nil Lines drops all lines. Lines is safe for concurrent use.
type Lines struct {
	clock  clock.WithDelayedExecution
	redact func(text string) string
	write  func(ctx context.Context, ops ...store.Op) error
	failed func(err error)
	runID  string
	firing string

	writing sync.Mutex // held while a batch is written, so that lines keep their order; taken before mu

	mu      sync.Mutex
	pending []store.Op
	timer   clock.Timer
	count   int
	bytes   int
	dropped int64
	warned  bool // a line was added that says that lines are dropped
	keep    bool // collect the lines for the caller too
	kept    []store.CodeLine
}

// Options of Lines.
type Options struct {
	Clock clock.WithDelayedExecution
	// RunID is the run that lines belong to; "" outside of a run.
	RunID string
	// Redact removes secrets from a text.
	Redact func(text string) string
	// Write writes to the thread's log.
	Write func(ctx context.Context, ops ...store.Op) error
	// Failed is called when lines are lost.
	Failed func(err error)
}

// New returns lines of one run, or of one call outside of a run.
func New(o Options) *Lines {
	return &Lines{clock: o.Clock, runID: o.RunID, redact: o.Redact, write: o.Write, failed: o.Failed}
}

// Collect keeps the lines for the caller too. It is called before the first line.
func (l *Lines) Collect() { l.keep = true }

// SetFiring says which firing of a ScheduledEffect the lines belong to. It is called before the first line.
func (l *Lines) SetFiring(f *store.Firing) {
	if l != nil {
		l.firing = f.Text()
	}
}

// HandlerLine is the data of EventHandlerLog.
type HandlerLine struct {
	Level   string          `json:"level"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Console adds a line that code wrote to the console.
func (l *Lines) Console(source, call string, line sandbox.Log) {
	if l == nil {
		return
	}
	l.add(store.CodeLine{Level: line.Level, Message: line.Message, Time: line.Time.UnixMicro(), Source: source, Call: call})
}

// Fail adds a line about a failure of code that no result, message or status shows.
func (l *Lines) Fail(source, text string) {
	if l == nil {
		return
	}
	l.add(store.CodeLine{Level: "error", Message: text, Time: l.clock.Now().UnixMicro(), Source: source})
}

func (l *Lines) add(line store.CodeLine) {
	if !l.countLine(len(line.Message)) {
		return
	}
	line.Message, line.Firing = l.clean(line.Message), l.firing
	data, err := json.Marshal(line)
	if err != nil {
		return // texts and numbers: cannot fail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keep {
		l.kept = append(l.kept, line)
	}
	l.put(store.EventCodeLog, data)
}

// Handler adds a line of a handler's logger.
func (l *Lines) Handler(line HandlerLine) {
	if l == nil {
		return
	}
	if !l.countLine(len(line.Message) + len(line.Data)) {
		return
	}
	line.Message = l.clean(line.Message)
	data, err := json.Marshal(line)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(store.EventHandlerLog, data)
}

// clean removes secrets from a text before it cuts the text, so that no part of a secret remains.
func (l *Lines) clean(text string) string {
	cut := len(text) >= protocol.MaxLog-4 // within a character of the bound: the sandbox has cut it, perhaps within a secret
	text = l.redact(strings.ReplaceAll(text, "\x00", "\uFFFD"))
	if cut {
		text = text[:max(len(text)-MaxLine, 0)] + "…"
	}
	return clip.Text(strings.ToValidUTF8(text, "\uFFFD"), MaxLine)
}

// countLine counts a line, and reports whether the bounds allow it.
func (l *Lines) countLine(size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.bytes += min(size, MaxLine)
	if l.count <= MaxRunLines && l.bytes <= MaxRunBytes {
		return true
	}
	l.dropped++
	if !l.warned {
		l.warned = true
		l.record(store.CodeLine{Level: "warn", Message: fmt.Sprintf("more than %d lines or %d bytes: what comes after is dropped", MaxRunLines, MaxRunBytes)})
	}
	return false
}

// record adds a line of Skein's own. The caller holds mu.
func (l *Lines) record(line store.CodeLine) {
	line.Time, line.Firing = l.clock.Now().UnixMicro(), l.firing
	data, _ := json.Marshal(line) // texts and numbers: cannot fail
	if l.keep {
		l.kept = append(l.kept, line)
	}
	l.put(store.EventCodeLog, data)
}

// put adds a line to the next batch. The caller holds mu.
func (l *Lines) put(kind string, data json.RawMessage) {
	l.pending = append(l.pending, &store.AppendEvent{Event: store.Event{Type: kind, RunID: l.runID, Data: data}})
	if l.timer == nil {
		l.timer = l.clock.AfterFunc(linesInterval, l.Flush)
	}
}

// Flush writes what waits.
func (l *Lines) Flush() {
	if l == nil {
		return
	}
	l.mu.Lock()
	waits := len(l.pending) > 0
	l.mu.Unlock()
	if !waits {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	ops := l.pending
	l.pending = nil
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.mu.Unlock()
	if len(ops) == 0 {
		return
	}
	// Do not use the context of the code: it may have ended, and the lines may be about that.
	ctx, cancel := context.WithTimeout(context.Background(), linesTimeout)
	defer cancel()
	if err := l.write(ctx, append(ops, &store.TrimLines{Keep: MaxThreadLines})...); err != nil && !errors.Is(err, store.ErrNotFound) {
		l.failed(err)
	}
}

// End adds how many lines were dropped, and writes what waits.
func (l *Lines) End() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if n := l.dropped; n > 0 {
		l.dropped = 0
		atLeast := ""
		if l.count >= sandbox.MaxIsolateLogs {
			atLeast = "at least " // the sandbox sends no more
		}
		l.record(store.CodeLine{Level: "warn", Message: fmt.Sprintf("… %s%d lines dropped", atLeast, n), Dropped: n})
	}
	l.mu.Unlock()
	l.Flush()
}

// Collected returns the lines that Collect kept.
func (l *Lines) Collected() []store.CodeLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}
