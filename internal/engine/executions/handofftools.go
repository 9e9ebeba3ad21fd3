package executions

import (
	"context"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// handoffsOf implements tool.Handoffs for the tools of a thread (AGT-03).
type handoffsOf struct {
	service *Service
	thread  *store.Thread
	agent   *definition.Agent // nil when it could not be resolved; then there are no tools
	// made is how often the run was handed over to another agent before this execution.
	made int
}

// Handoffs returns the handoffs of a thread's conversation for its tools. made is how often the run was handed over to another
// agent before.
func (s *Service) Handoffs(t *store.Thread, agent *definition.Agent, made int) tool.Handoffs {
	return &handoffsOf{service: s, thread: t, agent: agent, made: made}
}

// Allowed implements tool.Handoffs.
func (h *handoffsOf) Allowed(ctx context.Context) (bool, error) {
	ofThread, err := h.service.opts.Definitions.HandoffPolicy(ctx, h.thread.Namespace, h.thread.Name)
	if err != nil {
		return false, err
	}
	return skeinv1.MayHandOver(ofThread, h.agent.Spec.HandoffPolicy), nil
}

// Check implements tool.Handoffs.
func (h *handoffsOf) Check(ctx context.Context, to string) error {
	if to == h.agent.Name {
		return fmt.Errorf("the agent %s already has the conversation: continue it yourself", to)
	}
	allowed, err := h.Allowed(ctx)
	if err != nil {
		return err
	}
	if !allowed {
		return fmt.Errorf("this conversation stays with the agent %s (handoffPolicy: Never): continue it yourself", h.agent.Name)
	}
	if limit := h.service.opts.Limits.Handoffs; h.made >= limit {
		return fmt.Errorf("the conversation was handed over %d times since the last message, which is the limit: continue it yourself", h.made)
	}
	next, err := h.service.opts.Definitions.Agent(ctx, h.thread.Namespace, to)
	if err != nil {
		return fmt.Errorf("the agent %s cannot take the conversation now: %w", to, err)
	}
	for _, side := range next.Sides() {
		if err := definition.CheckArguments(&side.Prompt.Spec, h.thread.Arguments); err != nil {
			return fmt.Errorf("the agent %s cannot take this conversation, because its arguments do not fit what the agent requires: %w", to, err)
		}
	}
	return nil
}
