package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/thread/scopes"
)

// handlerMethods are the host methods that the code of a handler can call, besides those of state.
var handlerMethods = map[string]func(c *handlerCall, ctx context.Context, args []any) (any, error){
	"handler.delta":   (*handlerCall).delta,
	"handler.log":     (*handlerCall).log,
	"handler.destroy": (*handlerCall).destroy,
	"model.open": func(c *handlerCall, ctx context.Context, args []any) (any, error) {
		if c.models == nil {
			return nil, errors.New("the session is over: code can no longer call models")
		}
		return c.models.open(ctx, args)
	},
	"model.next":  func(c *handlerCall, ctx context.Context, args []any) (any, error) { return c.models.next(ctx, args) },
	"model.close": func(c *handlerCall, _ context.Context, args []any) (any, error) { return c.models.close(args) },
}

// Serves implements codeexec.Server.
func (c *handlerCall) Serves(method string) bool { return handlerMethods[method] != nil }

// Serve implements codeexec.Server.
func (c *handlerCall) Serve(ctx context.Context, method string, args []any) (any, error) {
	return handlerMethods[method](c, ctx, args)
}

// errNotHandler is the error for other code that calls such a method.
var errNotHandler = errors.New("only handlers of an agent's sides can use this, while they are called")

// addHandlers adds the modules of the handlers of an execution's agent.
func addHandlers(x *codeexec.Execution, runID string) {
	x.Code.SetProperty(handlerProperty, handlerPrefix(runID))
	for _, s := range []*definition.Side{x.Agent.A, x.Agent.B} {
		if s != nil && s.Handler != nil {
			x.Code.Add(handlerModule(s), s.Handler.Module, handlerTimeout(s))
		}
	}
}

// end marks the answer as complete: later pieces of it are refused.
func (c *handlerCall) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// destroysNow reports whether the handler has called destroy.
func (c *handlerCall) destroysNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.destroys
}

// delta streams a piece of the answer (EVT-02).
func (c *handlerCall) delta(_ context.Context, args []any) (any, error) {
	piece, ok := textArg(args, 0)
	if !ok {
		return nil, errors.New("a piece of a streamed answer must be text")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errAnswered
	}
	if c.length += len(piece); c.length > maxHandlerAnswer {
		return nil, &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("the answer is larger than %d bytes: put it into a file", maxHandlerAnswer)}
	}
	c.deltas.emit(model.Delta{Text: piece})
	return nil, nil
}

// destroy clears the thread's state now. The conversation is cleared in the step that writes the answer.
func (c *handlerCall) destroy(context.Context, []any) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errAnswered
	}
	c.destroys = true
	c.state().Clear()
	return nil, nil
}

// state returns the state of the thread as code sees it.
func (c *handlerCall) state() *scopes.ThreadState { return c.run.exec.Host.Session.Thread.State }

// log writes a line of ctx.logger: level, message, data.
func (c *handlerCall) log(_ context.Context, args []any) (any, error) {
	level, _ := textArg(args, 0)
	message, _ := textArg(args, 1)
	if !handlerLevels[level] {
		return nil, fmt.Errorf("there is no log level %q", level)
	}
	var data any
	if len(args) > 2 {
		data = args[2]
	}
	c.write(level, message, data)
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

var handlerLevels = map[string]bool{"trace": true, "debug": true, "info": true, "warn": true, "error": true, "fatal": true}

// write appends a line to the thread's log.
func (c *handlerCall) write(level, message string, data any) {
	line := codelog.HandlerLine{Level: level, Message: message}
	if raw, err := value.ToJSON(data); err == nil && len(raw) <= codelog.MaxLine && string(raw) != "{}" && string(raw) != "null" {
		line.Data = raw
	} else if err == nil && len(raw) > codelog.MaxLine {
		line.Message += " [data left out: too large]"
	}
	c.lines.Handler(line)
}
