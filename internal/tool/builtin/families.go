// Package builtin implements Skein's built-in tools (TOL-02), by families.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// families has the constructor of each family. A test in hack/doctest compares it with the enum of the API and with docs/tools.md.
var families = map[skeinv1.BuiltinTool]func(context.Context, *tool.Host) ([]tool.Tool, error){
	skeinv1.BuiltinFiles:     always(files),
	skeinv1.BuiltinCode:      always(code),
	skeinv1.BuiltinEffects:   always(effects),
	skeinv1.BuiltinSubagents: subagents,
	skeinv1.BuiltinKV:        always(values),
	skeinv1.BuiltinWait:      always(waiting),
	skeinv1.BuiltinMemory:    always(memory),
	skeinv1.BuiltinThreads:   always(threads),
	skeinv1.BuiltinHandoff:   always(handoff),
}

// always adapts a constructor that reads nothing, so that it cannot fail.
func always(make func(*tool.Host) []tool.Tool) func(context.Context, *tool.Host) ([]tool.Tool, error) {
	return func(_ context.Context, h *tool.Host) ([]tool.Tool, error) { return make(h), nil }
}

// Names returns the names of the families, sorted.
func Names() []string {
	names := make([]string, 0, len(families))
	for name := range families {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// Family returns the tools of a family that can do something at present. It leaves out the others.
func Family(ctx context.Context, f skeinv1.BuiltinTool, h *tool.Host) ([]tool.Tool, error) {
	create, ok := families[f]
	if !ok {
		return nil, errors.New("there is no built-in family " + string(f) + ": use one of " + strings.Join(Names(), ", "))
	}
	return create(ctx, h)
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
