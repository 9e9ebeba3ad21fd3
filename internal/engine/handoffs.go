package engine

import (
	"context"
	"fmt"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/agent"
)

// handoffsOf an execution, for tools (AGT-03).
type handoffsOf struct {
	execution *execution
	// made is how often the run has passed to another agent before this execution.
	made int
}

// Allowed implements tool.Handoffs.
func (h *handoffsOf) Allowed(ctx context.Context) (bool, error) {
	x := h.execution
	ofThread, err := x.engine.opts.Definitions.HandoffPolicy(ctx, x.host.Thread.Namespace, x.host.Thread.Name)
	if err != nil {
		return false, err
	}
	return skeinv1.MayHandOver(ofThread, x.agent.Spec.HandoffPolicy), nil
}

// Check implements tool.Handoffs.
func (h *handoffsOf) Check(ctx context.Context, to string) error {
	x := h.execution
	if to == x.agent.Name {
		return fmt.Errorf("the conversation is with the agent %s already: go on yourself", to)
	}
	allowed, err := h.Allowed(ctx)
	if err != nil {
		return err
	}
	if !allowed {
		return fmt.Errorf("this conversation stays with the agent %s (handoffPolicy: Never): go on yourself", x.agent.Name)
	}
	if limit := x.engine.opts.Limits.Handoffs; h.made >= limit {
		return fmt.Errorf("the conversation was handed over %d times since the last message, which is the limit: go on yourself", h.made)
	}
	next, err := x.engine.opts.Definitions.Agent(ctx, x.host.Thread.Namespace, to)
	if err != nil {
		return fmt.Errorf("the agent %s cannot take the conversation now: %w", to, err)
	}
	for _, side := range next.Sides() {
		if err := CheckArguments(&side.Prompt.Spec, x.host.Thread.Arguments); err != nil {
			return fmt.Errorf("the agent %s cannot take this conversation, whose arguments do not fit what it requires: %w", to, err)
		}
	}
	return nil
}

// handoffOp hands the thread over by a call.
func handoffOp(to, runID, callID string) *store.Handoff {
	return &store.Handoff{Agent: to, By: store.HandoffByTool, RunID: runID, ToolCallID: callID}
}

// agentTools are those of a prompt that are agents. Those that would hand the conversation over are not shown while it
// must stay.
func (x *execution) agentTools(ctx context.Context, called []definition.CalledAgent) ([]tool.Tool, error) {
	allowed := true
	if slices.ContainsFunc(called, func(c definition.CalledAgent) bool { return !c.Ask }) {
		var err error
		if allowed, err = x.host.Handoffs.Allowed(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]tool.Tool, 0, len(called))
	for _, c := range called {
		out = append(out, x.agentTool(c, !c.Ask && !allowed))
	}
	return out, nil
}

func (x *execution) agentTool(c definition.CalledAgent, hidden bool) tool.Tool {
	return agent.New(agent.Spec{
		Name: c.Name, Agent: c.ObjectName, Description: c.Description, Ask: c.Ask, Arguments: c.Arguments, Hidden: hidden,
	}, x.host)
}

// unlisted gives the agent that a queued call names and the prompt does not list: whoever may queue calls may hand the
// conversation over to any agent that is to be called. Nil when there is none.
func (x *execution) unlisted(ctx context.Context, name string) (tool.Tool, error) {
	c, err := x.engine.opts.Definitions.CalledAgent(ctx, x.host.Thread.Namespace, name)
	if err != nil || c == nil {
		return nil, err
	}
	return x.agentTool(*c, false), nil
}
