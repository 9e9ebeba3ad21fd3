package codeexec

import (
	"context"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/agent"
	"github.com/skein-dev/skein/internal/tool/builtin"
)

// HandoffOp returns the operation by which a tool call hands the thread over to an agent.
func HandoffOp(to, runID, callID string) *store.Handoff {
	return &store.Handoff{Agent: to, By: store.HandoffByTool, RunID: runID, ToolCallID: callID}
}

// agentTools returns the agents that a prompt lists, as tools. While the conversation may not be handed over, the tools
// that would do so are hidden from the model.
func (x *Execution) agentTools(ctx context.Context, called []definition.CalledAgent) ([]tool.Tool, error) {
	allowed := true
	if slices.ContainsFunc(called, func(c definition.CalledAgent) bool { return !c.Ask }) {
		var err error
		if allowed, err = x.Host.Handoffs.Allowed(ctx); err != nil {
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
func (x *Execution) agentTool(c definition.CalledAgent, hidden bool) tool.Tool {
	return agent.New(agent.Spec{
		Name: c.Name, Agent: c.ObjectName, Description: c.Description, Ask: c.Ask, Arguments: c.Arguments, Hidden: hidden,
		TTLAfterFinished: c.TTLAfterFinished, Retain: c.Retain,
	}, x.Host)
}

const (
	// SubagentCreate is the name of the tool that starts subagents.
	SubagentCreate = "subagent_create"
	// MetadataImmediate marks the message with the calls that start a thread's immediate subagents (SUB-07).
	MetadataImmediate = "immediate"
)

// QueuedTool returns the tool of a queued call in a message that the prompt does not list: that of an agent, or for immediate
// subagents the one that starts them. It returns nil if there is none.
func (x *Execution) QueuedTool(ctx context.Context, name string, m *store.Message) (tool.Tool, error) {
	if name != SubagentCreate || m.Metadata[MetadataImmediate] == nil {
		return x.UnlistedTool(ctx, name)
	}
	family, err := builtin.Family(ctx, skeinv1.BuiltinSubagents, x.Host)
	if err != nil {
		return nil, err
	}
	for _, t := range family {
		if t.Definition().Name == name {
			return t, nil
		}
	}
	return nil, nil
}

// UnlistedTool returns the tool of an agent that a queued call names and the prompt does not list: those who may queue calls
// may hand the conversation over to any agent that is exposed as a tool. It returns nil if there is no such agent.
func (x *Execution) UnlistedTool(ctx context.Context, name string) (tool.Tool, error) {
	c, err := x.Env.Definitions.CalledAgent(ctx, x.Host.Thread.Namespace, name)
	if err != nil || c == nil {
		return nil, err
	}
	return x.agentTool(*c, false), nil
}
