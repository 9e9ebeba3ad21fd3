package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Bounds of the lines that code may write to a thread's log.
const (
	// MaxLogLine bounds the text of a line, in bytes.
	MaxLogLine = 8 << 10
	// MaxRunLogLines and MaxRunLogBytes bound the lines of a run, or of a call outside of one.
	MaxRunLogLines = 1000
	MaxRunLogBytes = 1 << 20
	// MaxThreadLogLines bounds the lines that a thread keeps: the oldest are dropped.
	MaxThreadLogLines = 5000
	// linesInterval is how long a line waits for others before they are written together.
	linesInterval = 50 * time.Millisecond
	// linesTimeout bounds how long the code's caller waits for lines to be written.
	linesTimeout = 5 * time.Second
)

// lines writes what code logs into the thread's log, in batches: whatever code does, it waits for no line, and the log
// takes no more than the bounds allow. What is written is without secrets. Lines that cannot be written are lost, for
// that is no reason to fail a run. A nil lines takes none.
type lines struct {
	clock  clock.WithDelayedExecution
	redact func(text string) string
	write  func(ctx context.Context, ops ...store.Op) error
	failed func(err error)
	runID  string

	writing sync.Mutex // one batch is written at a time, so that lines keep their order

	mu      sync.Mutex
	pending []store.Op
	timer   clock.Timer
	count   int
	bytes   int
	dropped int64
	told    bool // that lines are dropped
	keep    bool // collect the lines for the caller too
	kept    []store.CodeLine
}

func (e *Engine) newLines(t *store.Thread, st *thread.State, runID string) *lines {
	return &lines{
		clock: e.opts.Clock, runID: runID, write: st.Apply,
		redact: func(text string) string { return e.opts.Redact(t.Namespace, text) },
		failed: func(err error) {
			e.log.V(1).Info("lines that code logged cannot be written", "namespace", t.Namespace, "name", t.Name, "run", runID, "error", err.Error())
		},
	}
}

// sourceKinds are what the folders of modules stand for.
var sourceKinds = map[string]string{"tools": "tool", "effects": "effect", "endpoints": "endpoint", "sides": "handler"}

// sourceOf names what a module is to people; "" for a module that is Skein's own.
func sourceOf(module string) string {
	folder, name, ok := strings.Cut(module, "/")
	if !ok {
		return ""
	}
	if folder+"/" == hookFolder {
		return "hook/" + strings.TrimPrefix(name, definition.SideB+"/")
	}
	if kind := sourceKinds[folder]; kind != "" {
		return kind + "/" + name
	}
	return ""
}

// console takes a line that code wrote to the console.
func (l *lines) console(source, call string, line sandbox.Log) {
	if l == nil {
		return
	}
	l.add(store.CodeLine{Level: line.Level, Message: line.Message, Time: line.Time.UnixMicro(), Source: source, Call: call})
}

// fail takes what Skein has to say of code that failed where no result, message or status says it.
func (l *lines) fail(source, text string) {
	if l == nil {
		return
	}
	l.add(store.CodeLine{Level: "error", Message: text, Time: l.clock.Now().UnixMicro(), Source: source})
}

func (l *lines) add(line store.CodeLine) {
	if !l.takes(len(line.Message)) {
		return
	}
	line.Message = l.clean(line.Message)
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

// handler takes a line of a handler's logger.
func (l *lines) handler(line handlerLine) {
	if l == nil {
		return
	}
	if !l.takes(len(line.Message) + len(line.Data)) {
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

// clean takes the secrets out of a text before it is cut, so that no part of one is left.
func (l *lines) clean(text string) string {
	cut := len(text) >= protocol.MaxLog-4 // within a character of the bound: the sandbox has cut it, perhaps within a secret
	text = l.redact(strings.ReplaceAll(text, "\x00", "\uFFFD"))
	if cut {
		text = text[:max(len(text)-MaxLogLine, 0)] + "…"
	}
	return clipText(strings.ToValidUTF8(text, "\uFFFD"), MaxLogLine)
}

// takes counts a line, and reports whether it is kept.
func (l *lines) takes(size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.bytes += min(size, MaxLogLine)
	if l.count <= MaxRunLogLines && l.bytes <= MaxRunLogBytes {
		return true
	}
	l.dropped++
	if !l.told {
		l.told = true
		l.record(store.CodeLine{Level: "warn", Message: fmt.Sprintf("more than %d lines or %d bytes: what comes after is dropped", MaxRunLogLines, MaxRunLogBytes)})
	}
	return false
}

// record puts a line of Skein's own; mu is held.
func (l *lines) record(line store.CodeLine) {
	line.Time = l.clock.Now().UnixMicro()
	data, _ := json.Marshal(line) // texts and numbers: cannot fail
	if l.keep {
		l.kept = append(l.kept, line)
	}
	l.put(store.EventCodeLog, data)
}

// put has a line written with the next batch; mu is held.
func (l *lines) put(kind string, data json.RawMessage) {
	l.pending = append(l.pending, &store.AppendEvent{Event: store.Event{Type: kind, RunID: l.runID, Data: data}})
	if l.timer == nil {
		l.timer = l.clock.AfterFunc(linesInterval, l.flush)
	}
}

// flush writes what waits.
func (l *lines) flush() {
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
	// The code's own context may have ended, which is what the lines may be about.
	ctx, cancel := context.WithTimeout(context.Background(), linesTimeout)
	defer cancel()
	if err := l.write(ctx, append(ops, &store.TrimLines{Keep: MaxThreadLogLines})...); err != nil && !errors.Is(err, store.ErrNotFound) {
		l.failed(err)
	}
}

// end says how many lines were dropped, and writes what waits.
func (l *lines) end() {
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
	l.flush()
}

// taken gives the lines that were collected for the caller.
func (l *lines) taken() []store.CodeLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}
