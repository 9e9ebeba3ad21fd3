package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// Why a run was cancelled; context.Cause gives them.
var (
	errShutdown  = errors.New("the manager stops")
	errAborted   = errors.New("the thread is being purged")
	errDestroyed = errors.New("the conversation was destroyed")
	errTerminal  = errors.New("the thread was terminated")
)

// stopKind is how a run is ended from outside.
type stopKind int

const (
	stopByUser    stopKind = iota // what waits is parked (MSG-08)
	stopCancel                    // this run and no more (RUN-10)
	stopInterrupt                 // a message takes its place (RUN-09)
	stopRollback                  // the same, and what the run has appended is taken back
)

// stoppedError: somebody ended the run. It carries what became of that back to whoever did.
type stoppedError struct {
	kind   stopKind
	reason string         // for people
	runID  string         // only this run; any when empty
	with   *store.Enqueue // queued in the transaction that ends the run
	quiet  bool           // the parent has ended before: it is told nothing that would start it again

	// written tells that the run was ended for this, err why it could not be. They are read once the thread has been
	// let go of.
	written bool
	err     error
}

func (e *stoppedError) Error() string { return "stopped: " + e.reason }

// stopOf gives the stop that a cause is; nil when it is another.
func stopOf(cause error) *stoppedError {
	var s *stoppedError
	errors.As(cause, &s)
	return s
}

// Reasons of runs that did not succeed, in Run.Reason and status.lastRun.reason.
const (
	ReasonModelUnavailable = "ModelUnavailable" // the endpoint refuses connections or answers 429 or 5xx
	ReasonModelTimeout     = "ModelTimeout"     // the answer took longer than spec.timeout
	ReasonModelBadAnswer   = "ModelBadAnswer"   // the answer is none of the protocol
	ReasonModelRefused     = "ModelRefused"     // the provider refused the request: 4xx
	ReasonModelFailed      = "ModelFailed"      // the provider, or a script, says that it failed
	ReasonModelInvalid     = "ModelInvalid"     // the Model cannot be used as it is declared
	ReasonMaxStepsReached  = "MaxStepsReached"  // as many model calls as maxSteps allows, and no end of the turn
	// ReasonMaxSessionTurnsReached: as many turns as maxSessionTurns allows, which is no failure.
	ReasonMaxSessionTurnsReached = "MaxSessionTurnsReached"
	ReasonEnvUnreadable          = "EnvUnreadable"   // a variable of the thread cannot be opened
	ReasonContextTooLarge        = "ContextTooLarge" // not even the prompt and the newest turn fit what the model can read, or its provider says so
	ReasonInvalidAnswer          = "InvalidAnswer"   // the answer does not fit the prompt's responseSchema, told or not
	ReasonInvalidTools           = "InvalidTools"    // the prompt's tools cannot be offered
	ReasonInvalidInput           = "InvalidInput"    // what was said is no input that the side's handler takes
	ReasonInvalidOutput          = "InvalidOutput"   // what the side's handler gave is not what its schema says
	ReasonHandlerFailed          = "HandlerFailed"   // the side's handler threw; the thread's log has the stack
	ReasonHandlerTimeout         = "HandlerTimeout"  // the side's handler took longer than it may
	ReasonSessionFailed          = "SessionFailed"   // the model called the agent's sessionFail tool
	ReasonStoppedByUser          = "StoppedByUser"
	ReasonTerminated             = "Terminated"
	ReasonInternalError          = "InternalError"      // a fault of Skein itself; its log has more
	ReasonCancelled              = "Cancelled"          // a user cancelled this run
	ReasonInterrupted            = "Interrupted"        // a message took its place
	ReasonRolledBack             = "RolledBack"         // a message took its place, and what it had appended is gone
	ReasonMaxTokensReached       = "MaxTokensReached"   // the run used as many tokens as its limits allow
	ReasonMaxCostReached         = "MaxCostReached"     // it cost as much
	ReasonMaxDurationReached     = "MaxDurationReached" // it was at work for as long
	ReasonInvalidLimits          = "InvalidLimits"      // the limits of the run cannot be read
)

// failure is why a run fails: it is recorded and ends the run. Any other error interrupts the run, which
// is taken up again.
type failure struct {
	reason   string
	message  string
	metadata map[string]any // to keep with the message that records it
}

func (f *failure) Error() string { return f.reason + ": " + f.message }

func failf(reason, format string, args ...any) *failure {
	return &failure{reason: reason, message: fmt.Sprintf(format, args...)}
}

// modelFailure sorts the failure of a model call. The error of a cancelled context stays as it is.
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
