package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/deltas"
	"github.com/skein-dev/skein/internal/engine/handlers"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// A side of an agent may be code instead of a prompt and a model (AGT-09). Its turn is one call of the handler, which
// counts as one step. Its answer goes into the log like a model's answer. A call whose answer is not in the log is
// repeated under the same id.

// askHandler does what ask does, for a side that is code.
func (r *run) askHandler(ctx context.Context) (ended bool, err error) {
	side := r.Side()
	conv, err := r.hooks.FilterMessages(ctx, r.conv, r.record.Steps)
	if err != nil {
		return false, err
	}
	id := runlog.NewMessageID()
	pieces := deltas.New(ctx, r.streams, id, r.known) // of all calls, so that a repeat takes back what was written of the one before
	for again := false; ; again = true {
		x, err := r.code.Execution(ctx)
		if err != nil {
			return false, err
		}
		text, call, err := r.callHandler(ctx, x, side, pieces, handlers.Input(&r.Role, conv, side))
		var gone *sandbox.IsolateGoneError
		if errors.As(err, &gone) && !again && gone.Status == sandbox.StatusTerminated && !codeexec.PastWallTime(gone) && ctx.Err() == nil {
			// The sandbox was lost together with what the code did to its state. Repeat the call as after a crash.
			r.code.Forget()
			pieces.Emit(model.Delta{Reset: true})
			continue
		}
		var lost error
		if r.known, lost = pieces.Stop(); lost != nil {
			return false, lost
		}
		if err != nil {
			r.countHandlers()
			return false, handlers.FailureOf(ctx, call, err, r.requests.Redacted, r.log.WithValues("run", r.record.ID, "side", side.Name))
		}
		r.code.TakeDecisions() // goes into the row of the run, which is written with the answer
		r.destroys = call.DestroysNow()
		usage, names, trimmed := call.Models.Take()
		if trimmed != nil {
			r.hooks.Record(r.requests.TrimEvents(r.record.ID, trimmed)...)
		}
		for _, name := range names {
			r.usage.CountModel(name)
		}
		return r.recordAnswer(ctx, id, &model.Response{Content: text, Usage: usage})
	}
}

// callHandler makes the call and returns the text of the answer.
func (r *run) callHandler(ctx context.Context, x *codeexec.Execution, side *definition.Side, pieces *deltas.Stream, input *store.Message) (string, *handlers.Call, error) {
	models := handlers.NewModelCalls(modelsPort{r}, side)
	call := handlers.NewCall(x.Code.Lines, pieces.Emit, func() { x.Host.Session.Thread.State.Clear() }, models)
	invocation := fmt.Sprintf("%s%d", handlers.Prefix(r.record.ID), r.record.Steps)
	x.Code.Handle(invocation, call)
	r.handlers = append(r.handlers, models)
	handlers.CallWhenCompleted(x, side, r.record.ID)
	r.code.BeginTurn(r.conv)
	r.service.fault("handler.before")
	args := map[string]any{"event": "call", "text": "", "message": nil, "first": r.State.First}
	if input != nil {
		args["text"] = transcript.ContentOf(input)
		args["message"] = input
	}
	v, err := x.Code.Invoke(r.hooks.Causation(ctx), invocation, handlers.Module(side), args, handlers.Timeout(side))
	call.End()
	r.service.fault("handler.after")
	if err != nil {
		return "", call, err
	}
	said, _ := v.(map[string]any)
	text, ok := said["text"].(string)
	if !ok {
		return "", call, errors.New("the handler returned no answer")
	}
	if len(text) > handlers.MaxAnswer {
		return "", call, fmt.Errorf("the answer has %d bytes, more than %d: put it into a file", len(text), handlers.MaxAnswer)
	}
	return strings.ReplaceAll(text, "\x00", "\uFFFD"), call, nil
}

// countHandlers adds to the run what its handlers have used apart from their answers: in calls that failed, and in
// work that continued after an answer.
func (r *run) countHandlers() {
	for _, m := range r.handlers {
		usage, names, trimmed := m.Take()
		if trimmed != nil {
			r.hooks.Record(r.requests.TrimEvents(r.record.ID, trimmed)...)
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
func (p modelsPort) Client(m *definition.Model) (model.Client, error) { return p.requests.Client(m) }

// MaxSteps implements handlers.ModelsPort.
func (p modelsPort) MaxSteps() int { return p.run.MaxSteps() }

// Arguments implements handlers.ModelsPort.
func (p modelsPort) Arguments() json.RawMessage { return p.Thread.Arguments }

// Fault implements handlers.ModelsPort.
func (p modelsPort) Fault() func(point string) { return p.service.opts.Fault }

// Log implements handlers.ModelsPort.
func (p modelsPort) Log() logr.Logger { return p.log.WithValues("run", p.record.ID) }
