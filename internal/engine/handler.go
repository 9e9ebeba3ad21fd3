package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
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

// handlerProperty tells an isolate the prefix of the invocations that are for handlers. Code does not see it.
const handlerProperty = "$handler"

// maxHandlerAnswer bounds the answer of a handler, in bytes.
const maxHandlerAnswer = 1 << 20

// handlerListeners bounds the time of the listeners for the end of a session.
const handlerListeners = 10 * time.Second

// handlerCall is one call of a handler, as the host sees it. mu guards the fields below it.
type handlerCall struct {
	run    *run
	lines  *codelog.Lines
	deltas *deltas
	models *modelCalls

	mu       sync.Mutex
	over     bool // the answer is complete: no more pieces are accepted
	length   int
	destroys bool // clear the conversation with the answer
}

func handlerModule(s *definition.Side) string { return "sides/" + s.Name }

func handlerTimeout(s *definition.Side) time.Duration {
	if s.Handler.Timeout > 0 {
		return s.Handler.Timeout
	}
	return defaultCodeTimeout
}

// handlerPrefix returns the prefix of the invocations of a run's handlers.
func handlerPrefix(runID string) string { return "handler_" + runID + "_" }

// askHandler does what ask does, for a side that is code.
func (r *run) askHandler(ctx context.Context) (ended bool, err error) {
	side := r.side()
	conv, err := r.filtered(ctx)
	if err != nil {
		return false, err
	}
	id := newMessageID()
	for again := false; ; again = true {
		x, err := r.execution(ctx)
		if err != nil {
			return false, err
		}
		text, call, err := r.callHandler(ctx, x, side, id, r.handlerInput(conv, side))
		var gone *sandbox.IsolateGoneError
		if errors.As(err, &gone) && !again && gone.Status == sandbox.StatusTerminated && !pastWallTime(gone) && ctx.Err() == nil {
			// The sandbox was lost together with what the code did to its state. Repeat the call as after a crash.
			x.close()
			r.exec, r.tools = nil, nil
			call.deltas.emit(model.Delta{Reset: true})
			continue
		}
		if lost := call.deltas.stop(); lost != nil {
			return false, lost
		}
		if err != nil {
			r.countHandlers()
			return false, r.handlerFailed(ctx, side, call, err)
		}
		r.decided() // goes into the row of the run, which is written with the answer
		r.destroys = call.destroysNow()
		usage, names, trimmed := call.models.take()
		if trimmed != nil {
			r.tellTrimmed(*trimmed)
		}
		for _, name := range names {
			r.countModel(name)
		}
		return r.recordAnswer(ctx, id, &model.Response{Content: text, Usage: usage})
	}
}

// callHandler makes the call and returns the text of the answer.
func (r *run) callHandler(ctx context.Context, x *execution, side *definition.Side, id string, input *store.Message) (string, *handlerCall, error) {
	call := &handlerCall{run: r, lines: x.code.lines, deltas: newDeltas(ctx, r, id), models: newModelCalls(r, side)}
	invocation := fmt.Sprintf("%s%d", handlerPrefix(r.record.ID), r.record.Steps)
	x.code.handle(invocation, call)
	r.handlers = append(r.handlers, call.models)
	r.completes(x, side)
	r.beginTurn()
	r.engine.fault("handler.before")
	args := map[string]any{"event": "call", "text": "", "message": nil}
	if input != nil {
		args["text"] = transcript.ContentOf(input)
		args["message"] = input
	}
	v, err := x.code.Invoke(r.causation(ctx), invocation, handlerModule(side), args, handlerTimeout(side))
	call.end()
	r.engine.fault("handler.after")
	if err != nil {
		return "", call, err
	}
	said, _ := v.(map[string]any)
	text, ok := said["text"].(string)
	if !ok {
		return "", call, errors.New("the handler returned no answer")
	}
	if len(text) > maxHandlerAnswer {
		return "", call, fmt.Errorf("the answer has %d bytes, more than %d: put it into a file", len(text), maxHandlerAnswer)
	}
	return strings.ReplaceAll(text, "\x00", "\uFFFD"), call, nil
}

// handlerFailed returns the error for a call without an answer. What the code threw goes into the thread's log with
// its stack. The run records the message.
func (r *run) handlerFailed(ctx context.Context, side *definition.Side, call *handlerCall, err error) error {
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
	case errors.Is(err, errCodeTimeout):
		reason, message = failure.ReasonHandlerTimeout, err.Error()
	case errors.As(err, &gone) && pastWallTime(gone):
		reason, message = failure.ReasonHandlerTimeout, gone.Reason+": raise maxWallTime of the SandboxPool"
	case errors.As(err, &thrown):
		message = thrown.Name + ": " + thrown.Message
		switch failed := call.models.failed(); {
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
			call.write("error", message, map[string]any{"stack": code.Explain(err)})
		}
	}
	message = r.redacted(message)
	r.log.Info("a handler failed", "run", r.record.ID, "side", side.Name, "reason", reason)
	if reason == failure.ReasonHandlerFailed {
		message = "the handler failed: " + message
	}
	return failure.New(reason, "%s", message)
}

// pastWallTime reports whether an isolate was ended because of its time limit, and not lost or never started.
func pastWallTime(gone *sandbox.IsolateGoneError) bool {
	return gone.Started && strings.Contains(gone.Reason, "ran for longer than")
}

// completes registers the handler to be called once when the session has ended and is saved (STA-06).
func (r *run) completes(x *execution, side *definition.Side) {
	runID := r.record.ID
	if x.completing[side.Name] {
		return
	}
	if x.completing == nil {
		x.completing = map[string]bool{}
	}
	x.completing[side.Name] = true
	x.host.Session.OnCompleted(func(ctx context.Context, _ *scopes.Session) {
		if !x.code.opened() {
			return // no code ran, so there are no listeners
		}
		ctx, cancel := context.WithTimeout(ctx, handlerListeners)
		defer cancel()
		invocation := handlerPrefix(runID) + "completed_" + side.Name
		x.code.handle(invocation, &handlerCall{run: r, lines: x.code.lines, over: true}) // it may log, but not ask models
		_, err := x.code.Invoke(ctx, invocation, handlerModule(side), map[string]any{"event": "completed"}, handlerListeners)
		if err != nil {
			x.code.lines.Fail(sourceOf(handlerModule(side)), "the listeners for the end of the session failed: "+code.Explain(err))
			x.engine.log.Info("cannot tell a handler that its session has ended", "namespace", x.host.Thread.Namespace, "name", x.host.Thread.Name, "run", runID, "error", err.Error())
		}
	})
}
