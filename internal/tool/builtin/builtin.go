// Package builtin implements Skein's built-in tools (TOL-02), by families.
package builtin

import (
	"context"
	"encoding/json"
	"errors"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Family returns the tools of a family that can do something at present. It leaves out the others.
func Family(ctx context.Context, f skeinv1.BuiltinTool, h *tool.Host) ([]tool.Tool, error) {
	switch f {
	case skeinv1.BuiltinFiles:
		return files(h), nil
	case skeinv1.BuiltinCode:
		return code(h), nil
	case skeinv1.BuiltinEffects:
		return effects(h), nil
	case skeinv1.BuiltinSubagents:
		return subagents(ctx, h)
	case skeinv1.BuiltinKV:
		return values(h), nil
	case skeinv1.BuiltinWait:
		return waiting(), nil
	case skeinv1.BuiltinMemory:
		return memory(h), nil
	case skeinv1.BuiltinThreads:
		return threads(h), nil
	case skeinv1.BuiltinHandoff:
		return handoff(h), nil
	}
	return nil, errors.New("there is no built-in family " + string(f) + ": use files, code, effects, subagents, kv, wait, memory, threads or handoff")
}

// function is a tool whose arguments are decoded into A.
type function[A any] struct {
	definition tool.Definition
	call       func(ctx context.Context, call tool.Call, args A) tool.Result
}

func newTool[A any](name, description, parameters string, call func(context.Context, tool.Call, A) tool.Result) *function[A] {
	return &function[A]{
		definition: tool.Definition{Name: name, Description: description, Parameters: json.RawMessage(parameters)},
		call:       call,
	}
}

// Definition implements tool.Tool.
func (f *function[A]) Definition() tool.Definition { return f.definition }

// Call implements tool.Tool.
func (f *function[A]) Call(ctx context.Context, call tool.Call) tool.Result {
	var args A
	if err := json.Unmarshal(call.Arguments, &args); err != nil {
		return tool.Failure("the arguments cannot be read: " + err.Error())
	}
	return f.call(ctx, call, args)
}

// failure returns a result that explains the error in words that a model can act on.
func failure(err error) tool.Result {
	switch {
	case thread.IsInvalid(err):
		return tool.Failure(err.Error())
	case errors.Is(err, store.ErrTerminated):
		return tool.Failure("that thread is terminated: it takes no new work")
	case errors.Is(err, store.ErrUnavailable):
		return tool.Failure("the store is unavailable at present: try again later")
	}
	return tool.Failure(err.Error())
}
