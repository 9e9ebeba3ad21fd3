package code

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Threadless is the `state` of code that runs without a thread: an effect of the cluster. It has the variables of the
// effect and the names of definitions. Everything else needs a thread, and says so.
type Threadless struct {
	// Env are the variables by name.
	Env map[string]string
	// Secret names the variables that are secret.
	Secret map[string]bool
	// Definitions may be nil: then there are no names.
	Definitions tool.Definitions
}

// Static returns the properties of state. threadId is null.
func (s *Threadless) Static(ctx context.Context) (map[string]any, error) {
	static := map[string]any{
		"threadId": nil, "agentId": nil, "userId": nil, "createdAt": nil, "arguments": map[string]any{}, "children": []any{},
		"terminated": nil, "execution": nil, methodsProperty: Methods(),
	}
	if s.Definitions == nil {
		return static, nil
	}
	for method, kind := range map[string]string{"getAgentNames()": "agent", "getPromptNames()": "prompt", "getModelNames()": "model"} {
		names, err := s.Definitions.Names(ctx, kind)
		if err != nil {
			return nil, err
		}
		static[method] = names
	}
	return static, nil
}

// Serve answers a call of a method of state.
func (s *Threadless) Serve(_ context.Context, _, method string, args []any) (any, error) {
	name := ""
	if len(args) > 0 {
		name, _ = args[0].(string)
	}
	value, ok := s.Env[name]
	switch {
	case method == "env" && !ok, method == "envType" && !ok:
		return nil, nil
	case method == "env":
		return value, nil
	case method == "envType" && s.Secret[name]:
		return string(store.EnvSecret), nil
	case method == "envType":
		return string(store.EnvText), nil
	}
	return nil, &sandbox.Error{Name: "Error", Message: fmt.Sprintf("state.%s needs a thread, and this effect runs without one: set threadRef or threadSelector in its ScheduledEffect", method)}
}
