package definitions

import (
	"context"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// ResolveEffect compiles an Effect and checks its schema.
func (d *Resolver) ResolveEffect(ctx context.Context, e *skeinv1.Effect) (*definition.Effect, error) {
	if err := d.schemas.check("spec.parameters", e.Spec.Parameters); err != nil {
		return nil, err
	}
	c, err := d.Code.compile(ctx, codeOwner{"Effect", e.Namespace, e.Name, string(e.UID), e.Generation, "spec.code"}, e.Spec.Code, inspect.Effect)
	if err != nil {
		return nil, err
	}
	return &definition.Effect{ObjectName: e.Name, Spec: e.Spec, Module: c.module, Digest: c.digest}, nil
}

// Tool implements ports.Definitions.
func (d *Resolver) Tool(ctx context.Context, namespace, name string) (*definition.Tool, error) {
	var t skeinv1.Tool
	if err := d.reader.get(ctx, "Tool", namespace, name, "the name of the tool", &t); err != nil {
		return nil, err
	}
	resolved, err := d.Tools.Resolve(ctx, &t)
	if err != nil {
		return nil, objects.Within("Tool", t.Name, err)
	}
	return resolved, nil
}

// EffectEnv implements ports.Definitions.
func (d *Resolver) EffectEnv(ctx context.Context, namespace string, env []skeinv1.EnvVar) ([]thread.SpecEnv, error) {
	values, err := d.Variables.resolve(ctx, namespace, env)
	if d.Tools.secrets != nil {
		for _, v := range values {
			if v.Type != store.EnvText {
				d.Tools.secrets.Register(namespace, "effect/"+v.Name, v.Value)
			}
		}
	}
	return values, err
}

// Effect implements ports.Definitions.
func (d *Resolver) Effect(ctx context.Context, namespace, name string) (*definition.Effect, error) {
	var e skeinv1.Effect
	if err := d.reader.get(ctx, "Effect", namespace, objects.EffectName(name), "the name of the effect", &e); err != nil {
		return nil, err
	}
	resolved, err := d.ResolveEffect(ctx, &e)
	if err != nil {
		return nil, objects.Within("Effect", e.Name, err)
	}
	return resolved, nil
}
