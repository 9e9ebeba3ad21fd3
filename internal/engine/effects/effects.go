// Package effects runs firings of ScheduledEffects, apart from the conversation and without the lease of its thread
// (EFF-02). It claims firings in the store, has them carried out, and records how they ended. It knows neither runs nor
// sandboxes: a Runner calls the code.
package effects

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// Definitions resolves effects.
type Definitions interface {
	// Effect resolves an effect by its plain or qualified name.
	Effect(ctx context.Context, namespace, name string) (*definition.Effect, error)
}

// Runner carries out firings. A *FinalError is not retried, nor is a *HandlerError unless the firing's own policy says
// so. A *CanceledError means that the thread has ended, and is not a failure. A *WaitError means that the firing could not begin, which
// does not count as an attempt. After any other error the Runner is called again with the same key: the handler could not run, or its end
// is not known.
type Runner interface {
	// RunEffect calls the handler of an effect and returns when it has ended.
	RunEffect(ctx context.Context, c Call) error
	// CallTool calls a Tool without a thread.
	CallTool(ctx context.Context, c Call) error
	// QueueTool queues a call of a tool on the thread.
	QueueTool(ctx context.Context, c Call) error
	// QueueMessage queues a message on the thread.
	QueueMessage(ctx context.Context, c Call) error
}

// Call is one attempt of a firing.
type Call struct {
	Firing *store.Firing
	Target Target
	// Thread is a living thread, as it was when its firing was claimed; nil without a thread.
	Thread *store.Thread
	// Effect is set when an effect is called.
	Effect *definition.Effect
	// Args are the firing's arguments. Those of an effect match its schema.
	Args any
	// Key is the idempotency key. It is the same for every attempt of a firing. The ids of everything that the handler causes
	// derive from it.
	Key string
	// Waits is told what keeps the handler from beginning, and "" once it begins. It returns at once.
	Waits func(why string)
	// HookDepth is the number of hooks in the chain of causes that led to the effect.
	HookDepth int
	// Log receives what the code writes if the firing has no thread with a log.
	Log *Log

	begun bool // this attempt or an earlier one had begun
}

// Log is what the code of a firing without a thread wrote, up to MaxLog bytes.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
	full bool
}

// MaxLog bounds the log of a firing, in bytes.
const MaxLog = 64 << 10

// Add adds a line. Lines beyond the bound are left out, which the last line says.
func (l *Log) Add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.full:
	case l.text.Len()+len(line) >= MaxLog:
		l.full = true
		l.text.WriteString("further lines were left out\n")
	default:
		l.text.WriteString(line + "\n")
	}
}

// String returns the lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const earlierLeftOut = "earlier lines were left out\n"

// joinLogs returns the log of a firing with that of another attempt, up to MaxLog bytes. The newest lines stay.
func joinLogs(before, attempt string) string {
	room := MaxLog - len(attempt)
	if len(before) <= room {
		return before + attempt
	}
	room -= len(earlierLeftOut)
	if room <= 0 {
		return attempt
	}
	before = before[len(before)-room:]
	_, lines, _ := strings.Cut(before, "\n") // the first line may have lost its beginning
	return earlierLeftOut + lines + attempt
}

// FinalError is a failure that is not retried.
type FinalError struct {
	// Text says what failed, for people.
	Text string
}

// Error implements error.
func (e *FinalError) Error() string { return e.Text }

// CanceledError means that the firing's thread was terminated or deleted before the firing had ended. It does not
// count as a failure: the schedule goes on for its other threads, and no webhook for failures is called.
type CanceledError struct {
	// Text says why, for people.
	Text string
}

// Error implements error.
func (e *CanceledError) Error() string { return e.Text }

// MissedError means that the firing could not begin within the time that its schedule allows. Its due time counts as one that did not fire,
// and not as a failure.
type MissedError struct {
	// Text says why, for people.
	Text string
}

// Error implements error.
func (e *MissedError) Error() string { return e.Text }

// HandlerError is a failure of the handler or of the called service. It is retried as the firing's own policy says.
type HandlerError struct {
	// Text says what failed, for people.
	Text string
}

// Error implements error.
func (e *HandlerError) Error() string { return e.Text }

// ServiceError is a failure of the called service that another attempt may mend. It is retried as the firing's own policy
// says, or else as that for handlers that could not run.
type ServiceError struct {
	// Text says what failed, for people.
	Text string
	// After is the least delay before another attempt.
	After time.Duration
}

// Error implements error.
func (e *ServiceError) Error() string { return e.Text }

// WaitError says what a firing waits for: it could not begin.
type WaitError struct{ Err error }

// Error implements error.
func (e *WaitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *WaitError) Unwrap() error { return e.Err }

// parameters returns the schema of an effect's arguments; nil if it declares none.
func parameters(e *definition.Effect) json.RawMessage {
	if e.Spec.Parameters == nil {
		return nil
	}
	return e.Spec.Parameters.Raw
}

// idempotencyKey returns the idempotency key of a firing: its effect, its due time and, when one due time has several
// firings, its thread.
func idempotencyKey(f *store.Firing) string {
	effect := cmp.Or(f.KeyedBy, f.EffectID) // what was tried before a restore has the same key afterwards
	if f.ThreadID == "" || f.Origin == "" {
		return fmt.Sprintf("effect:%s:%d", effect, f.Due)
	}
	return fmt.Sprintf("effect:%s:%d:%s", effect, f.Due, f.ThreadID)
}
