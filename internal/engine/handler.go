package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/handlers"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/scopes"
	"github.com/skein-dev/skein/internal/tool/code"
)

// A side of an agent may be code instead of a prompt and a model (AGT-09). Its turn is one call of the handler, which
// counts as one step. Its answer goes into the log like a model's answer. A call whose answer is not in the log is
// repeated under the same id.

// handlerListeners bounds the time of the listeners for the end of a session.
const handlerListeners = 10 * time.Second

// askHandler does what ask does, for a side that is code.
func (r *run) askHandler(ctx context.Context) (ended bool, err error) {
	side := r.Side()
	conv, err := r.hooks.Filtered(ctx, r.conv, r.record.Steps)
	if err != nil {
		return false, err
	}
	id := runlog.NewMessageID()
	for again := false; ; again = true {
		x, err := r.code.Execution(ctx)
		if err != nil {
			return false, err
		}
		text, call, pieces, err := r.callHandler(ctx, x, side, id, handlers.Input(&r.Role, conv, side))
		var gone *sandbox.IsolateGoneError
		if errors.As(err, &gone) && !again && gone.Status == sandbox.StatusTerminated && !codeexec.PastWallTime(gone) && ctx.Err() == nil {
			// The sandbox was lost together with what the code did to its state. Repeat the call as after a crash.
			x.Close()
			r.code.Forget()
			pieces.emit(model.Delta{Reset: true})
			continue
		}
		if lost := pieces.stop(); lost != nil {
			return false, lost
		}
		if err != nil {
			r.countHandlers()
			return false, r.handlerFailed(ctx, side, call, err)
		}
		r.code.Decided() // goes into the row of the run, which is written with the answer
		r.destroys = call.DestroysNow()
		usage, names, trimmed := call.Models.Take()
		if trimmed != nil {
			r.trimmed(trimmed)
		}
		for _, name := range names {
			r.usage.CountModel(name)
		}
		return r.recordAnswer(ctx, id, &model.Response{Content: text, Usage: usage})
	}
}

// callHandler makes the call and returns the text of the answer.
func (r *run) callHandler(ctx context.Context, x *codeexec.Execution, side *definition.Side, id string, input *store.Message) (string, *handlers.Call, *deltas, error) {
	pieces := newDeltas(ctx, r, id)
	models := handlers.NewModelCalls(modelsPort{r}, side)
	call := handlers.NewCall(x.Code.Lines, pieces.emit, func() { x.Host.Session.Thread.State.Clear() }, models)
	invocation := fmt.Sprintf("%s%d", handlers.Prefix(r.record.ID), r.record.Steps)
	x.Code.Handle(invocation, call)
	r.handlers = append(r.handlers, models)
	r.completes(x, side)
	r.code.BeginTurn(r.conv)
	r.engine.fault("handler.before")
	args := map[string]any{"event": "call", "text": "", "message": nil}
	if input != nil {
		args["text"] = transcript.ContentOf(input)
		args["message"] = input
	}
	v, err := x.Code.Invoke(r.hooks.Causation(ctx), invocation, handlers.Module(side), args, handlers.Timeout(side))
	call.End()
	r.engine.fault("handler.after")
	if err != nil {
		return "", call, pieces, err
	}
	said, _ := v.(map[string]any)
	text, ok := said["text"].(string)
	if !ok {
		return "", call, pieces, errors.New("the handler returned no answer")
	}
	if len(text) > handlers.MaxAnswer {
		return "", call, pieces, fmt.Errorf("the answer has %d bytes, more than %d: put it into a file", len(text), handlers.MaxAnswer)
	}
	return strings.ReplaceAll(text, "\x00", "\uFFFD"), call, pieces, nil
}

// handlerFailed returns the error for a call without an answer. What the code threw goes into the thread's log with
// its stack. The run records the message.
func (r *run) handlerFailed(ctx context.Context, side *definition.Side, call *handlers.Call, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	reason, message := failure.ReasonHandlerFailed, code.Explain(err)
	var thrown *sandbox.Error
	var gone *sandbox.IsolateGoneError
	switch {
	case errors.Is(err, codeexec.ErrTimeout):
		reason, message = failure.ReasonHandlerTimeout, err.Error()
	case errors.As(err, &gone) && codeexec.PastWallTime(gone):
		reason, message = failure.ReasonHandlerTimeout, gone.Reason+": raise maxWallTime of the SandboxPool"
	case errors.As(err, &thrown):
		message = thrown.Name + ": " + thrown.Message
		switch failed := call.Models.Failed(); {
		case thrown.Name == "InvalidInputError":
			reason, message = failure.ReasonInvalidInput, thrown.Message
		case thrown.Name == "InvalidOutputError":
			reason, message = failure.ReasonInvalidOutput, thrown.Message
		case thrown.Name == "TimeoutError":
			reason, message = failure.ReasonHandlerTimeout, thrown.Message+": raise spec.handler.timeout of the side, or maxWallTime of the SandboxPool"
		case failed != nil && strings.HasSuffix(thrown.Message, failed.Message):
			reason, message = failed.Reason, failed.Message
		}
		if reason == failure.ReasonHandlerFailed && thrown.Stack != "" {
			call.Write("error", message, map[string]any{"stack": code.Explain(err)})
		}
	}
	message = r.requests.Redacted(message)
	r.log.Info("a handler failed", "run", r.record.ID, "side", side.Name, "reason", reason)
	if reason == failure.ReasonHandlerFailed {
		message = "the handler failed: " + message
	}
	return failure.New(reason, "%s", message)
}

// completes registers the handler to be called once when the session has ended and is saved (STA-06).
func (r *run) completes(x *codeexec.Execution, side *definition.Side) {
	runID := r.record.ID
	if x.Completing[side.Name] {
		return
	}
	if x.Completing == nil {
		x.Completing = map[string]bool{}
	}
	x.Completing[side.Name] = true
	x.Host.Session.OnCompleted(func(ctx context.Context, _ *scopes.Session) {
		if !x.Code.Opened() {
			return // no code ran, so there are no listeners
		}
		ctx, cancel := context.WithTimeout(ctx, handlerListeners)
		defer cancel()
		invocation := handlers.Prefix(runID) + "completed_" + side.Name
		x.Code.Handle(invocation, handlers.NewCompletedCall(x.Code.Lines))
		_, err := x.Code.Invoke(ctx, invocation, handlers.Module(side), map[string]any{"event": "completed"}, handlerListeners)
		if err != nil {
			x.Code.Lines.Fail(codeexec.SourceOf(handlers.Module(side)), "the listeners for the end of the session failed: "+code.Explain(err))
			x.Env.Log.Info("cannot tell a handler that its session has ended", "namespace", x.Host.Thread.Namespace, "name", x.Host.Thread.Name, "run", runID, "error", err.Error())
		}
	})
}

// countHandlers adds to the run what its handlers have used apart from their answers: in calls that failed, and in
// work that continued after an answer.
func (r *run) countHandlers() {
	for _, m := range r.handlers {
		usage, names, trimmed := m.Take()
		if trimmed != nil {
			r.trimmed(trimmed)
		}
		for _, name := range names {
			r.usage.CountModel(name)
		}
		r.usage.Count(usage)
		if len(names) > 0 {
			r.record.Usage = r.usage.Encode()
		}
	}
}

// modelsPort implements handlers.ModelsPort.
type modelsPort struct{ *run }

// Client implements handlers.ModelsPort.
func (p modelsPort) Client(m *definition.Model) (model.Client, error) { return p.client(m) }

// MaxSteps implements handlers.ModelsPort.
func (p modelsPort) MaxSteps() int { return p.run.MaxSteps() }

// Arguments implements handlers.ModelsPort.
func (p modelsPort) Arguments() json.RawMessage { return p.Thread.Arguments }

// Fault implements handlers.ModelsPort.
func (p modelsPort) Fault() func(point string) { return p.engine.fault }
