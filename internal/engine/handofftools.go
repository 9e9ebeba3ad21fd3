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

// handoffsOf implements tool.Handoffs for the tools of an execution (AGT-03).
type handoffsOf struct {
	execution *execution
	// made is how often the run was handed over to another agent before this execution.
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
		return fmt.Errorf("the agent %s already has the conversation: continue it yourself", to)
	}
	allowed, err := h.Allowed(ctx)
	if err != nil {
		return err
	}
	if !allowed {
		return fmt.Errorf("this conversation stays with the agent %s (handoffPolicy: Never): continue it yourself", x.agent.Name)
	}
	if limit := x.engine.opts.Limits.Handoffs; h.made >= limit {
		return fmt.Errorf("the conversation was handed over %d times since the last message, which is the limit: continue it yourself", h.made)
	}
	next, err := x.engine.opts.Definitions.Agent(ctx, x.host.Thread.Namespace, to)
	if err != nil {
		return fmt.Errorf("the agent %s cannot take the conversation now: %w", to, err)
	}
	for _, side := range next.Sides() {
		if err := CheckArguments(&side.Prompt.Spec, x.host.Thread.Arguments); err != nil {
			return fmt.Errorf("the agent %s cannot take this conversation, because its arguments do not fit what the agent requires: %w", to, err)
		}
	}
	return nil
}

// handoffOp returns the operation by which a tool call hands the thread over to an agent.
func handoffOp(to, runID, callID string) *store.Handoff {
	return &store.Handoff{Agent: to, By: store.HandoffByTool, RunID: runID, ToolCallID: callID}
}

// agentTools returns the agents that a prompt lists, as tools. While the conversation may not be handed over, the tools
// that would do so are hidden from the model.
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

// agentTool returns an agent as a tool. A hidden tool is not shown to the model.
func (x *execution) agentTool(c definition.CalledAgent, hidden bool) tool.Tool {
	return agent.New(agent.Spec{
		Name: c.Name, Agent: c.ObjectName, Description: c.Description, Ask: c.Ask, Arguments: c.Arguments, Hidden: hidden,
	}, x.host)
}

// unlisted returns the tool of an agent that a queued call names and the prompt does not list: those who may queue calls
// may hand the conversation over to any agent that is exposed as a tool. It returns nil if there is no such agent.
func (x *execution) unlisted(ctx context.Context, name string) (tool.Tool, error) {
	c, err := x.engine.opts.Definitions.CalledAgent(ctx, x.host.Thread.Namespace, name)
	if err != nil || c == nil {
		return nil, err
	}
	return x.agentTool(*c, false), nil
}
