package engine

import (
	"context"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// newRelated returns the service for other threads. It returns nil if no objects of threads can be declared.
func (e *Engine) newRelated() *related.Service {
	if e.opts.ThreadObjects == nil {
		return nil
	}
	return related.New(related.Options{
		Threads: e.threads, Definitions: e.opts.Definitions, Models: e.opts.Models, Objects: e.opts.ThreadObjects, Redact: e.opts.Redact,
		Usage: usage.Of, Told: e.ThreadCreated, Accepts: acceptsNoArguments, Fault: e.fault,
	})
}

// acceptsNoArguments returns an error if an agent requires arguments of its threads.
func acceptsNoArguments(a *definition.Agent) error {
	for _, side := range a.Sides() {
		if err := CheckArguments(&side.Prompt.Spec, nil); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoThreadObjects reports that this engine makes no threads.
var ErrNoThreadObjects = errors.New("threads cannot be made here")

// HandOff hands the context of a thread to a new one (REL-03). Its errors are those of related.Service.HandOff.
func (e *Engine) HandOff(ctx context.Context, threadID string, h related.Handoff) (*related.Made, error) {
	if e.related == nil {
		return nil, ErrNoThreadObjects
	}
	return e.related.HandOff(ctx, threadID, h)
}

// resumeHandoffs completes what a manager that has ended left undone.
func (e *Engine) resumeHandoffs(ctx context.Context) {
	if e.related == nil {
		return
	}
	if err := e.related.Resume(ctx); err != nil && ctx.Err() == nil {
		e.log.Error(err, "cannot make the Thread objects of handoffs that were cut off; the next start of a manager tries again")
	}
}

// othersOf implements tool.Others for the tools of a thread.
type othersOf struct {
	engine *Engine
	thread *store.Thread
	state  *thread.State
	agent  *definition.Agent
	runID  string
}

// Read implements tool.Others.
func (o *othersOf) Read(ctx context.Context, req tool.ReadThread) (string, error) {
	r := related.Reader{Thread: o.thread, State: o.state, Rights: o.agent.Spec.ReadThreads}
	return o.engine.related.Read(ctx, r, related.Request(req))
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
	made, err := o.engine.HandOff(ctx, o.thread.ID, related.Handoff{
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
	h := handoffsOf{engine: o.engine, thread: o.thread, agent: o.agent}
	allowed, err := h.Allowed(ctx)
	if err != nil {
		return err
	}
	if !allowed {
		return fmt.Errorf("this conversation stays with the agent %s (handoffPolicy: %s): leave agent out", o.agent.Name, skeinv1.HandoffNever)
	}
	next, err := o.engine.opts.Definitions.Agent(ctx, o.thread.Namespace, name)
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return fmt.Errorf("the agent %s cannot take the thread: %s", name, notReady.Message)
	}
	if err == nil && !next.Spec.ExposeAsTool {
		return fmt.Errorf("the agent %s does not take handoffs (exposeAsTool is not true): leave agent out, or name another one", name)
	}
	return err
}
