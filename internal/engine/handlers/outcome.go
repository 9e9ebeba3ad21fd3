package handlers

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/scopes"
	"github.com/skein-dev/skein/internal/tool/code"
)

// handlerListeners bounds the time of the listeners for the end of a session.
const handlerListeners = 10 * time.Second

// FailureOf returns the error for a call without an answer. What the code threw goes into the thread's log with its
// stack. The run records the message.
func FailureOf(ctx context.Context, call *Call, err error, redact func(string) string, log logr.Logger) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	reason, message := skeinv1.ReasonHandlerFailed, code.Explain(err)
	var thrown *sandbox.Error
	var gone *sandbox.IsolateGoneError
	switch {
	case errors.Is(err, codeexec.ErrTimeout):
		reason, message = skeinv1.ReasonHandlerTimeout, err.Error()
	case errors.As(err, &gone) && codeexec.PastWallTime(gone):
		reason, message = skeinv1.ReasonHandlerTimeout, gone.Reason+": raise maxWallTime of the SandboxPool"
	case errors.As(err, &thrown):
		message = thrown.Name + ": " + thrown.Message
		switch failed := call.Models.LastFailure(); {
		case thrown.Name == "InvalidInputError":
			reason, message = skeinv1.ReasonInvalidInput, thrown.Message
		case thrown.Name == "InvalidOutputError":
			reason, message = skeinv1.ReasonInvalidOutput, thrown.Message
		case thrown.Name == "TimeoutError":
			reason, message = skeinv1.ReasonHandlerTimeout, thrown.Message+": raise spec.handler.timeout of the side, or maxWallTime of the SandboxPool"
		case failed != nil && strings.HasSuffix(thrown.Message, failed.Message):
			reason, message = failed.Reason, failed.Message
		}
		if reason == skeinv1.ReasonHandlerFailed && thrown.Stack != "" {
			call.Write("error", message, map[string]any{"stack": code.Explain(err)})
		}
	}
	message = redact(message)
	log.Info("a handler failed", "reason", reason)
	if reason == skeinv1.ReasonHandlerFailed {
		message = "the handler failed: " + message
	}
	return failure.New(reason, "%s", message)
}

// CallWhenCompleted registers the handler of a side to be called once when the session has ended and is saved (STA-06).
func CallWhenCompleted(x *codeexec.Execution, side *definition.Side, runID string) {
	if x.Completing[side.Name] {
		return
	}
	if x.Completing == nil {
		x.Completing = map[string]bool{}
	}
	x.Completing[side.Name] = true
	x.Host.Session.OnCompleted(func(ctx context.Context, _ *scopes.Session) {
		if !x.Code.HasIsolate() {
			return // no code ran, or it ended with a run that failed or was stopped: there are no listeners
		}
		ctx, cancel := context.WithTimeout(ctx, handlerListeners)
		defer cancel()
		invocation := Prefix(runID) + "completed_" + side.Name
		x.Code.Handle(invocation, NewCompletedCall(x.Code.Lines))
		_, err := x.Code.Invoke(ctx, invocation, Module(side), map[string]any{"event": "completed"}, handlerListeners)
		if err != nil {
			x.Code.Lines.Fail(codeexec.SourceOf(Module(side)), "the listeners for the end of the session failed: "+code.Explain(err))
			x.Env.Log.Info("cannot tell a handler that its session has ended", "namespace", x.Host.Thread.Namespace, "name", x.Host.Thread.Name, "run", runID, "error", err.Error())
		}
	})
}
