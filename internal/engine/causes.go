package engine

import (
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// Causes with which the context of a run ends. context.Cause returns them.
var (
	errShutdown  = errors.New("the manager is stopping")
	errAborted   = errors.New("the thread is being purged")
	errDestroyed = errors.New("the conversation was destroyed")
	errTerminal  = errors.New("the thread was terminated")
)

// stopKind is how a stop request ends a run.
type stopKind int

const (
	stopByUser    stopKind = iota // messages that wait in the inbox are parked (MSG-08)
	stopCancel                    // only this run ends (RUN-10)
	stopInterrupt                 // a message takes the place of the run (RUN-09)
	stopRollback                  // like stopInterrupt, and what the run has appended is removed
)

// stoppedError is the cause with which a run ends that was stopped from outside. It carries the outcome back to the caller.
type stoppedError struct {
	kind   stopKind
	reason string         // for people
	runID  string         // stop only this run; "" stops any
	with   *store.Enqueue // queued in the transaction that ends the run
	quiet  bool           // the parent has ended before: nothing is sent to it that would start it again

	// written is true once the stop has ended the run, and err says why it could not. While a worker of this replica has
	// the thread, that worker owns them: others read them after activeThread.done is closed.
	written bool
	err     error
}

func (e *stoppedError) Error() string { return "stopped: " + e.reason }

// stopOf returns the stop in an error, or nil if there is none.
func stopOf(cause error) *stoppedError {
	var s *stoppedError
	errors.As(cause, &s)
	return s
}
