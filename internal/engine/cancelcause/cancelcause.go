// Package cancelcause has the causes with which the context of a run ends.
package cancelcause

import (
	"context"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// Causes with which the context of a run ends. context.Cause returns them.
var (
	ErrShutdown  = errors.New("the manager is stopping")
	ErrAborted   = errors.New("the thread is being purged")
	ErrDestroyed = errors.New("the conversation was destroyed")
	ErrTerminal  = errors.New("the thread was terminated")
)

// ReleaseTimeout bounds the writes with which a run releases its thread after its own context has ended.
const ReleaseTimeout = 5 * time.Second

// Kind is how a stop request ends a run.
type Kind int

// The ways in which a stop request ends a run.
const (
	ByUser    Kind = iota // messages that wait in the inbox are parked (MSG-08)
	Cancel                // only this run ends (RUN-10)
	Interrupt             // a message takes the place of the run (RUN-09)
	Rollback              // like Interrupt, and what the run has appended is removed
)

// Stop is the cause that ends a run which was stopped from outside. It carries the outcome back to the caller.
type Stop struct {
	Kind        Kind
	Reason      string         // for people
	RunID       string         // stop only this run; "" stops any
	With        *store.Enqueue // queued in the transaction that ends the run
	ParentEnded bool           // the parent has ended before: nothing is sent to it that would start it again

	// Written is true once the stop has ended the run, and err says why it could not. While a worker of this replica has
	// the thread, that worker owns them: others read them after activethreads.Active.Done is closed.
	Written bool
	Err     error
}

// Error implements error.
func (e *Stop) Error() string { return "stopped: " + e.Reason }

// StopOf returns the stop in an error, or nil if there is none.
func StopOf(cause error) *Stop {
	var s *Stop
	errors.As(cause, &s)
	return s
}

// lastWordsTime bounds how long the hooks for the final messages of a terminated thread may take.
const lastWordsTime = 2 * time.Minute

// PastTermination returns a context for the hooks of the messages with which a thread ends. Storing these messages terminates the thread,
// which ends ctx with ErrTerminal; the returned context goes on after that, for lastWordsTime at most. It ends when ctx ends for another
// reason, and with life, the context of the engine.
func PastTermination(ctx, life context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordsTime)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), ErrTerminal) {
			cancel()
		}
	})
	stopEnding := context.AfterFunc(life, cancel)
	return out, func() {
		stop()
		stopEnding()
		cancel()
	}
}
