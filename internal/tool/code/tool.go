// Package code runs tools written in TypeScript or JavaScript (TOL-02, TOL-03): Tool objects, in the isolate that all
// definition code of one execution shares, with ThreadState as `state`.
package code

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skein-dev/skein/internal/tool"
)

// Spec is a compiled Tool object.
type Spec struct {
	Name        string // name that the model calls
	Description string
	Parameters  json.RawMessage // JSON Schema; any object when empty
	Module      string          // the module's name in the isolate
	Timeout     time.Duration   // of one call; 0 for the sandbox's own
}

type codeTool struct {
	spec Spec
	host *tool.Host
}

// New returns the tool of a Tool object.
func New(s Spec, h *tool.Host) tool.Tool { return &codeTool{spec: s, host: h} }

// Definition implements tool.Tool.
func (t *codeTool) Definition() tool.Definition {
	return tool.Definition{Name: t.spec.Name, Description: t.spec.Description, Parameters: t.spec.Parameters}
}

// Call implements tool.Tool.
func (t *codeTool) Call(ctx context.Context, call tool.Call) tool.Result {
	var args any
	if err := json.Unmarshal(call.Arguments, &args); err != nil {
		return tool.Failure("the arguments cannot be read: " + err.Error())
	}
	v, err := t.host.Code.Invoke(ctx, call.ID, t.spec.Module, args, t.spec.Timeout)
	if err != nil {
		return tool.Failure(Explain(err))
	}
	return resultOf(ctx, t.host, v)
}
