// Package handlers serves the code of handlers, which are sides of an agent in code (AGT-09): the pieces of their answers, their log and
// the models that they ask.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// property tells an isolate the prefix of the invocations that are for handlers. Code does not see it.
const property = "$handler"

// MaxAnswer bounds the answer of a handler, in bytes.
const MaxAnswer = 1 << 20

// Call is one call of a handler, as the host sees it. mu guards the fields below it.
type Call struct {
	lines  *codelog.Lines
	emit   func(model.Delta) // streams a piece of the answer
	clear  func()            // clears the thread's state
	Models *ModelCalls       // nil when the session is over

	mu       sync.Mutex
	over     bool // the answer is complete: no more pieces are accepted
	length   int
	destroys bool // clear the conversation with the answer
}

// NewCall returns a call whose answer is streamed with emit, and which may ask models. clear clears the thread's state.
func NewCall(lines *codelog.Lines, emit func(model.Delta), clear func(), models *ModelCalls) *Call {
	return &Call{lines: lines, emit: emit, clear: clear, Models: models}
}

// NewCompletedCall returns the call that tells a handler of the end of its session. It may log, but not ask models.
func NewCompletedCall(lines *codelog.Lines) *Call {
	return &Call{lines: lines, over: true}
}

// Module returns the module of a side's handler.
func Module(s *definition.Side) string { return "sides/" + s.Name }

// Timeout returns the time limit of a call of a side's handler.
func Timeout(s *definition.Side) time.Duration {
	if s.Handler.Timeout > 0 {
		return s.Handler.Timeout
	}
	return codeexec.DefaultTimeout
}

// Prefix returns the prefix of the invocations of a run's handlers.
func Prefix(runID string) string { return "handler_" + runID + "_" }

// methods are the host methods that the code of a handler can call, besides those of state.
var methods = map[string]func(c *Call, ctx context.Context, args []any) (any, error){
	"handler.delta":   (*Call).delta,
	"handler.log":     (*Call).log,
	"handler.destroy": (*Call).destroy,
	"model.open": func(c *Call, ctx context.Context, args []any) (any, error) {
		if c.Models == nil {
			return nil, errors.New("the session is over: code can no longer call models")
		}
		return c.Models.open(ctx, args)
	},
	"model.next":  func(c *Call, ctx context.Context, args []any) (any, error) { return c.Models.next(ctx, args) },
	"model.close": func(c *Call, _ context.Context, args []any) (any, error) { return c.Models.close(args) },
}

// Serves implements codeexec.Server.
func (c *Call) Serves(method string) bool { return methods[method] != nil }

// Serve implements codeexec.Server.
func (c *Call) Serve(ctx context.Context, method string, args []any) (any, error) {
	return methods[method](c, ctx, args)
}

// errNotHandler is the error for other code that calls such a method.
var errNotHandler = errors.New("only handlers of an agent's sides can use this, while they are called")

// Add adds the modules of the handlers of an execution's agent. Outside of a run there are none to call, and runID is "".
func Add(x *codeexec.Execution, runID string) {
	x.Code.Reserve(errNotHandler, slices.Collect(maps.Keys(methods))...)
	if x.Agent == nil || runID == "" {
		return
	}
	x.Code.SetProperty(property, Prefix(runID))
	for _, s := range []*definition.Side{x.Agent.A, x.Agent.B} {
		if s != nil && s.Handler != nil {
			x.Code.Add(Module(s), s.Handler.Module, Timeout(s))
		}
	}
}

// End marks the answer as complete: later pieces of it are refused.
func (c *Call) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// DestroysNow reports whether the handler has called destroy.
func (c *Call) DestroysNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.destroys
}

// delta streams a piece of the answer (EVT-02).
func (c *Call) delta(_ context.Context, args []any) (any, error) {
	piece, ok := textArg(args, 0)
	if !ok {
		return nil, errors.New("a piece of a streamed answer must be text")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errAnswered
	}
	if c.length += len(piece); c.length > MaxAnswer {
		return nil, &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("the answer is larger than %d bytes: put it into a file", MaxAnswer)}
	}
	c.emit(model.Delta{Text: piece})
	return nil, nil
}

// destroy clears the thread's state now. The conversation is cleared in the transaction that writes the answer.
func (c *Call) destroy(context.Context, []any) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errAnswered
	}
	c.destroys = true
	c.clear()
	return nil, nil
}

// log writes a line of ctx.logger: level, message, data.
func (c *Call) log(_ context.Context, args []any) (any, error) {
	level, _ := textArg(args, 0)
	message, _ := textArg(args, 1)
	if !levels[level] {
		return nil, fmt.Errorf("there is no log level %q", level)
	}
	var data any
	if len(args) > 2 {
		data = args[2]
	}
	c.Write(level, message, data)
	return nil, nil
}

// textArg returns an argument that is a string. ok is false if it is missing or not a string.
func textArg(args []any, i int) (string, bool) {
	if i >= len(args) {
		return "", false
	}
	s, ok := args[i].(string)
	return s, ok
}

var errAnswered = errors.New("the answer is already complete")

var levels = map[string]bool{"trace": true, "debug": true, "info": true, "warn": true, "error": true, "fatal": true}

// Write appends a line to the thread's log.
func (c *Call) Write(level, message string, data any) {
	line := codelog.HandlerLine{Level: level, Message: message}
	if raw, err := value.ToJSON(data); err == nil && len(raw) <= codelog.MaxLine && string(raw) != "{}" && string(raw) != "null" {
		line.Data = raw
	} else if err == nil && len(raw) > codelog.MaxLine {
		line.Message += " [data left out: too large]"
	}
	c.lines.Handler(line)
}
