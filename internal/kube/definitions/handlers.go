package definitions

import (
	"context"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

// resolveHandler compiles a side that is written in code, and resolves the models that it may call (AGT-09). field is
// the agent's field that holds the side.
func (d *Resolver) resolveHandler(ctx context.Context, a *skeinv1.Agent, name, field string, spec *skeinv1.AgentSide) (*definition.Side, error) {
	out := &definition.Side{Name: name, Spec: *spec}
	var err error
	if out.Hooks, err = d.Code.resolveHooks(ctx, a, &skeinv1.Prompt{}); err != nil {
		return nil, err
	}
	c, err := d.Code.compileHandler(ctx, a, field, spec.Handler)
	if err != nil {
		return nil, err
	}
	out.Handler = &definition.Handler{Module: c.module, Models: map[string]*definition.Model{}}
	if t := spec.Handler.Timeout; t != nil {
		out.Handler.Timeout = t.Duration
	}
	for i, ref := range spec.Handler.Models {
		var m skeinv1.Model
		at := fmt.Sprintf("%s.handler.models[%d].modelRef", field, i)
		if err := d.reader.get(ctx, "Model", a.Namespace, ref.ModelRef.Name, at, &m); err != nil {
			return nil, err
		}
		if err := CheckWrites(at, m.Name, &m.Spec); err != nil {
			return nil, err
		}
		resolved, err := d.Models.Resolve(ctx, &m)
		if err != nil {
			return nil, objects.Within("Model", m.Name, err)
		}
		out.Handler.Models[ref.Name] = resolved
	}
	return out, nil
}

func (code *Code) compileHandler(ctx context.Context, a *skeinv1.Agent, field string, h *skeinv1.SideHandler) (*compiled, error) {
	owner := agentOwner(a)
	owner.field = field + ".handler.code"
	c, err := code.compile(ctx, owner, h.Code, inspect.Handler)
	if err != nil {
		return nil, objects.Within("the handler", field+".handler", err)
	}
	return c, nil
}

// CheckHandler returns an error when the code of a side cannot be used. field is the agent's field that holds the
// side.
func (code *Code) CheckHandler(ctx context.Context, a *skeinv1.Agent, field string, h *skeinv1.SideHandler) error {
	_, err := code.compileHandler(ctx, a, field, h)
	return err
}
