package executions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// reservationGrace is how old a reserved child must be before its reservation counts as left over by a crash.
const reservationGrace = time.Minute

// limits returns the limits of a new child, and checks its arguments against its agent. If the agent cannot be resolved
// it accepts all arguments: the child waits for the agent.
func (c *childrenOf) limits(ctx context.Context, req tool.ChildRequest) ([]store.ChildLimit, error) {
	limits := []store.ChildLimit{{Scope: store.ChildrenOfParent, Most: c.service.opts.Limits.Children}}
	if req.Kind.MaxInstances > 0 {
		limits = append(limits, store.ChildLimit{Scope: store.ChildrenOfKind, Most: int(req.Kind.MaxInstances)})
	}
	agent, err := c.service.opts.Definitions.Agent(ctx, c.thread.Namespace, req.Kind.AgentRef.Name)
	var notReady *definition.NotReadyError
	switch {
	case errors.As(err, &notReady):
	case err != nil:
		return nil, err
	default:
		if agent.Spec.MaxInstances > 0 {
			limits = append(limits, store.ChildLimit{Scope: store.ChildrenOfAgent, Most: int(agent.Spec.MaxInstances)})
		}
		if err := checkChildArguments(agent, req.Arguments); err != nil {
			return nil, err
		}
	}
	return append(limits, store.ChildLimit{Scope: store.ChildrenOfNamespace, Most: c.service.opts.Limits.NamespaceChildren}), nil
}

// declare declares a child. When that would exceed a limit, it first gives up the places of children that were never
// declared, because a crash came in between.
func (c *childrenOf) declare(ctx context.Context, req ports.ChildRequest) (*skeinv1.ChildStatus, error) {
	c.service.fault("child.create.before")
	child, err := c.service.opts.Children.Create(ctx, c.thread, req)
	c.service.fault("child.create.after")
	var over *store.ChildLimitError
	if !errors.As(err, &over) {
		return child, err
	}
	released, failed := c.releaseUnmade(ctx)
	if failed != nil {
		return nil, failed
	}
	if released {
		child, err = c.service.opts.Children.Create(ctx, c.thread, req)
		if over = nil; !errors.As(err, &over) {
			return child, err
		}
	}
	return nil, explainLimit(over, req.Subagent)
}

// releaseUnmade releases the places of children that were reserved a while ago and do not exist.
func (c *childrenOf) releaseUnmade(ctx context.Context) (released bool, err error) {
	unmade, err := c.service.opts.Store.UnmadeChildren(ctx, c.thread.ID, c.service.opts.Now()-reservationGrace.Microseconds())
	if err != nil {
		return false, err
	}
	for _, reference := range unmade {
		exists, err := c.service.opts.Children.Exists(ctx, c.thread, reference)
		if err != nil {
			return released, err
		}
		if exists {
			continue
		}
		if err := c.service.opts.Store.ReleaseChild(ctx, c.thread.ID, reference); err != nil {
			return released, err
		}
		released = true
	}
	return released, nil
}

// explainLimit says to a model what limit a child would exceed, and what it can do.
func explainLimit(over *store.ChildLimitError, kind skeinv1.AgentSubagent) error {
	switch over.Scope {
	case store.ChildrenOfParent:
		return fmt.Errorf("this conversation has %d subagents, which is the limit: wait until one is done, or send a message to one of them", over.Living)
	case store.ChildrenOfKind:
		return fmt.Errorf("there are %d subagents %s at the same time, which is the limit (maxInstances): wait until one is done, or send a message to one of them", over.Living, kind.Name)
	case store.ChildrenOfAgent:
		return fmt.Errorf("the conversations of this namespace have %d subagents of the agent %s, which is its limit (maxInstances): try again later, or do this task yourself", over.Living, kind.AgentRef.Name)
	}
	return fmt.Errorf("the conversations of this namespace have %d subagents, which is the limit: try again later, or do this task yourself", over.Living)
}

// checkChildArguments checks the arguments of a child before it is created against what the prompts of its agent require.
func checkChildArguments(a *definition.Agent, arguments json.RawMessage) error {
	for _, side := range []*definition.Side{a.A, a.B} {
		if side == nil {
			continue
		}
		if err := definition.CheckArguments(&side.Prompt.Spec, arguments); err != nil {
			return fmt.Errorf("the arguments do not fit what the agent %s requires: %w. Start it again with corrected arguments", a.Name, err)
		}
	}
	return nil
}
