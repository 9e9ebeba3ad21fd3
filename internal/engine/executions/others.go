package executions

import (
	"context"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// othersOf implements tool.Others for the tools of a thread.
type othersOf struct {
	service *Service
	thread  *store.Thread
	state   *thread.State
	agent   *definition.Agent
	runID   string
}

// Read implements tool.Others.
func (o *othersOf) Read(ctx context.Context, req tool.ReadThread) (string, error) {
	r := related.Reader{Thread: o.thread, State: o.state, Rights: o.agent.Spec.ReadThreads}
	return o.service.opts.Related.Read(ctx, r, related.Request(req))
}

// MayHandOff implements tool.Others. The work of a child belongs to its parent, so a child hands nothing off.
func (o *othersOf) MayHandOff() bool { return o.thread.ParentID == "" }

// HandOff implements tool.Others. A model may hand off to the agents to which it may hand the conversation over, and to its
// own.
func (o *othersOf) HandOff(ctx context.Context, req tool.HandOff) (*tool.HandedOff, error) {
	if !o.MayHandOff() {
		return nil, errors.New("this conversation works for its parent: give it the result instead")
	}
	if err := o.mayUse(ctx, req.Agent); err != nil {
		return nil, err
	}
	made, err := o.service.opts.Related.HandOff(ctx, o.thread.ID, related.Handoff{
		Cause: req.Cause, Goal: req.Goal, Agent: req.Agent, Files: req.Files, Comment: req.Comment, Title: req.Title, RunID: o.runID, ByModel: true,
	})
	if err != nil {
		return nil, err
	}
	return &tool.HandedOff{Thread: made.Name, ThreadID: made.Thread.ID, Agent: made.Thread.Agent}, nil
}

// mayUse returns an error if a model may not choose an agent for the new thread.
func (o *othersOf) mayUse(ctx context.Context, name string) error {
	if name == "" || name == o.agent.Name {
		return nil
	}
	h := handoffsOf{service: o.service, thread: o.thread, agent: o.agent}
	allowed, err := h.Allowed(ctx)
	if err != nil {
		return err
	}
	if !allowed {
		return fmt.Errorf("this conversation stays with the agent %s (handoffPolicy: %s): leave agent out", o.agent.Name, skeinv1.HandoffNever)
	}
	next, err := o.service.opts.Definitions.Agent(ctx, o.thread.Namespace, name)
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return fmt.Errorf("the agent %s cannot take the thread: %s", name, notReady.Message)
	}
	if err == nil && !next.Spec.ExposeAsTool {
		return fmt.Errorf("the agent %s does not take handoffs (exposeAsTool is not true): leave agent out, or name another one", name)
	}
	return err
}
