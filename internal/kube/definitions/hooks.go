package definitions

import (
	"context"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

// Hooks implements ports.Definitions.
func (d *Resolver) Hooks(ctx context.Context, namespace, agent string) (map[skeinv1.HookName]*definition.Hook, error) {
	var a skeinv1.Agent
	if err := d.reader.get(ctx, "Agent", namespace, agent, "the agentRef of the thread", &a); err != nil {
		return nil, err
	}
	var hooks map[skeinv1.HookName]*definition.Hook
	for _, side := range []struct {
		field string
		spec  *skeinv1.AgentSide
	}{{"spec.sideA", &a.Spec.SideA}, {"spec.sideB", a.Spec.SideB}} {
		if side.spec == nil {
			continue
		}
		var p skeinv1.Prompt // stays empty for a side that is written in code
		if side.spec.Handler == nil {
			if err := d.reader.get(ctx, "Prompt", namespace, side.spec.PromptRef.Name, side.field+".promptRef", &p); err != nil {
				return nil, objects.Within("Agent", agent, err)
			}
		}
		of, err := d.Code.resolveHooks(ctx, &a, &p)
		if err != nil {
			return nil, err
		}
		if hooks == nil {
			hooks = of
			continue
		}
		for name, h := range of {
			if hooks[name] == nil {
				hooks[name] = h
			}
		}
	}
	return hooks, nil
}

// resolveHooks returns the hooks of an agent that uses this prompt, or nil without any. A hook of the prompt replaces
// the agent's hook of the same name (HOK-01).
func (code *Code) resolveHooks(ctx context.Context, a *skeinv1.Agent, p *skeinv1.Prompt) (map[skeinv1.HookName]*definition.Hook, error) {
	if len(a.Spec.Hooks)+len(p.Spec.Hooks) == 0 {
		return nil, nil
	}
	hooks := make(map[skeinv1.HookName]*definition.Hook, len(a.Spec.Hooks)+len(p.Spec.Hooks))
	if err := code.compileHooks(ctx, promptOwner(p), p.Spec.Hooks, hooks); err != nil {
		return nil, objects.Within("Prompt", p.Name, err)
	}
	if err := code.compileHooks(ctx, agentOwner(a), a.Spec.Hooks, hooks); err != nil {
		return nil, objects.Within("Agent", a.Name, err)
	}
	return hooks, nil
}

// CheckAgentHooks returns an error when a hook of an Agent cannot be used, even if a prompt overrides it.
func (code *Code) CheckAgentHooks(ctx context.Context, a *skeinv1.Agent) error {
	return code.compileHooks(ctx, agentOwner(a), a.Spec.Hooks, map[skeinv1.HookName]*definition.Hook{})
}

// CheckPromptHooks returns an error when a hook of a Prompt cannot be used.
func (code *Code) CheckPromptHooks(ctx context.Context, p *skeinv1.Prompt) error {
	return code.compileHooks(ctx, promptOwner(p), p.Spec.Hooks, map[skeinv1.HookName]*definition.Hook{})
}

// compileHooks compiles the hooks of one object and adds them to known. It does not replace hooks that are already
// there.
func (code *Code) compileHooks(ctx context.Context, owner codeOwner, list []skeinv1.Hook, known map[skeinv1.HookName]*definition.Hook) error {
	for i := range list {
		h := &list[i]
		if known[h.Hook] != nil {
			continue
		}
		of := owner
		of.name, of.field = owner.name+"."+string(h.Hook), fmt.Sprintf("spec.hooks[%d].code", i)
		c, err := code.compile(ctx, of, h.Code, inspect.Hook)
		if err != nil {
			return objects.Within("the hook", string(h.Hook), err)
		}
		hook := &definition.Hook{Name: h.Hook, Owner: owner.kind + " " + owner.name, Module: c.module}
		if h.Timeout != nil {
			hook.Timeout = h.Timeout.Duration
		}
		known[h.Hook] = hook
	}
	return nil
}

func agentOwner(a *skeinv1.Agent) codeOwner {
	return codeOwner{kind: "Agent", namespace: a.Namespace, name: a.Name, uid: string(a.UID), generation: a.Generation}
}

func promptOwner(p *skeinv1.Prompt) codeOwner {
	return codeOwner{kind: "Prompt", namespace: p.Namespace, name: p.Name, uid: string(p.UID), generation: p.Generation}
}
