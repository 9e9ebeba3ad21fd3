// Package failure says why runs fail: the reasons, and the error that ends a run with one of them.
package failure

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

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
	ReasonQuotaExceeded          = "QuotaExceeded"      // the namespace has used up its tokens or its cost of the day
	ReasonMaxDurationReached     = "MaxDurationReached" // the run worked for as long as its limits allow
	ReasonInvalidLimits          = "InvalidLimits"      // the limits of the run cannot be read
)

// Error is why a run fails. It is recorded and ends the run. Any other error interrupts the run, which is continued
// later.
type Error struct {
	Reason   string
	Message  string
	Metadata map[string]any // of the message that records the failure
}

// Error implements error.
func (f *Error) Error() string { return f.Reason + ": " + f.Message }

// New returns a failure with a reason and a formatted message for people.
func New(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// OfModel returns the *Error of a run whose model call failed. It returns the cause of a cancelled context, and
// errors of the store, as they are.
func OfModel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnavailable) || membudget.Refused(err) {
		return err
	}
	var m *model.Error
	if !errors.As(err, &m) {
		return New(ReasonModelFailed, "the model call failed: %v", err)
	}
	f := &Error{Message: m.Message, Metadata: m.Metadata}
	switch {
	case m.Code == model.CodeContextLength:
		f.Reason = ReasonContextTooLarge
	case m.Kind == model.KindUnreachable, m.Kind == model.KindStatus && m.Passing:
		f.Reason = ReasonModelUnavailable
	case m.Kind == model.KindTimeout:
		f.Reason = ReasonModelTimeout
	case m.Kind == model.KindBadAnswer:
		f.Reason = ReasonModelBadAnswer
	case m.Kind == model.KindStatus, m.Kind == model.KindFiltered:
		f.Reason = ReasonModelRefused
	case m.Kind == model.KindConfig:
		f.Reason = ReasonModelInvalid
	default:
		f.Reason = ReasonModelFailed
	}
	return f
}
