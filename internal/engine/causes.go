package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/model"
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

// Reasons of runs that did not succeed, in Run.Reason and status.lastRun.reason.
const (
	ReasonModelUnavailable = "ModelUnavailable" // the endpoint refuses connections or answers 429 or 5xx
	ReasonModelTimeout     = "ModelTimeout"     // the answer took longer than spec.timeout
	ReasonModelBadAnswer   = "ModelBadAnswer"   // the provider's answer does not follow its protocol
	ReasonModelRefused     = "ModelRefused"     // the provider refused the request: 4xx
	ReasonModelFailed      = "ModelFailed"      // the provider, or a script, says that it failed
	ReasonModelInvalid     = "ModelInvalid"     // the Model cannot be used as it is declared
	ReasonMaxStepsReached  = "MaxStepsReached"  // the turn or the run made as many model calls as maxSteps allows, and has not ended
	// ReasonMaxSessionTurnsReached: the session had as many turns as maxSessionTurns allows, which is not a failure.
	ReasonMaxSessionTurnsReached = "MaxSessionTurnsReached"
	ReasonEnvUnreadable          = "EnvUnreadable"   // a variable of the thread cannot be opened
	ReasonContextTooLarge        = "ContextTooLarge" // not even the prompt and the newest turn fit the model's context window, or the provider says that they do not
	ReasonInvalidAnswer          = "InvalidAnswer"   // the answer does not fit the prompt's responseSchema, even after one retry
	ReasonInvalidTools           = "InvalidTools"    // the prompt's tools cannot be offered
	ReasonInvalidInput           = "InvalidInput"    // the message is not an input that the side's handler accepts
	ReasonInvalidOutput          = "InvalidOutput"   // what the side's handler returned does not fit its output schema
	ReasonHandlerFailed          = "HandlerFailed"   // the side's handler threw; the thread's log has the stack
	ReasonHandlerTimeout         = "HandlerTimeout"  // the side's handler took longer than its timeout
	ReasonSessionFailed          = "SessionFailed"   // the model called the agent's sessionFail tool
	ReasonStoppedByUser          = "StoppedByUser"
	ReasonTerminated             = "Terminated"
	ReasonInternalError          = "InternalError"      // a fault of Skein itself; the manager's log has details
	ReasonCancelled              = "Cancelled"          // a user cancelled this run
	ReasonInterrupted            = "Interrupted"        // a message took the place of the run
	ReasonRolledBack             = "RolledBack"         // a message took the place of the run, and what the run had appended was removed
	ReasonMaxTokensReached       = "MaxTokensReached"   // the run used as many tokens as its limits allow
	ReasonMaxCostReached         = "MaxCostReached"     // the run cost as much as its limits allow
	ReasonMaxDurationReached     = "MaxDurationReached" // the run worked for as long as its limits allow
	ReasonInvalidLimits          = "InvalidLimits"      // the limits of the run cannot be read
)

// failure is why a run fails. It is recorded and ends the run. Any other error interrupts the run, which is continued
// later.
type failure struct {
	reason   string
	message  string
	metadata map[string]any // of the message that records the failure
}

func (f *failure) Error() string { return f.reason + ": " + f.message }

func failf(reason, format string, args ...any) *failure {
	return &failure{reason: reason, message: fmt.Sprintf(format, args...)}
}

// modelFailure returns the *failure of a run whose model call failed. It returns the cause of a cancelled context, and
// errors of the store, as they are.
func modelFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	var m *model.Error
	if !errors.As(err, &m) {
		return failf(ReasonModelFailed, "the model call failed: %v", err)
	}
	f := &failure{message: m.Message, metadata: m.Metadata}
	switch {
	case m.Code == model.CodeContextLength:
		f.reason = ReasonContextTooLarge
	case m.Kind == model.KindUnreachable, m.Kind == model.KindStatus && m.Passing:
		f.reason = ReasonModelUnavailable
	case m.Kind == model.KindTimeout:
		f.reason = ReasonModelTimeout
	case m.Kind == model.KindBadAnswer:
		f.reason = ReasonModelBadAnswer
	case m.Kind == model.KindStatus, m.Kind == model.KindFiltered:
		f.reason = ReasonModelRefused
	case m.Kind == model.KindConfig:
		f.reason = ReasonModelInvalid
	default:
		f.reason = ReasonModelFailed
	}
	return f
}
