package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// A handoff (SPEC AGT-03) changes the agent of the thread's row, whoever makes it; a run follows the row. It does so
// between two steps: the calls of a step are made by the agent that asked for them, and its name is the run's until
// all of them have their results, so that a run that was cut off knows whose they are.

// agentOf resolves the agent that a run goes on with: the one whose step is under way, or the thread's when that one
// is not there any more.
func (e *Engine) agentOf(ctx context.Context, t *store.Thread, under *store.Run) (*definition.Agent, error) {
	if under != nil && under.Agent != "" && under.Agent != t.Agent {
		agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, under.Agent)
		var notReady *definition.NotReadyError
		if err == nil || !errors.As(err, &notReady) {
			return agent, err
		}
	}
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return nil, fmt.Errorf("agent %s of thread %s: %w", t.Agent, t.ID, err)
	}
	return agent, nil
}

// isHanded tells whether the thread has passed to another agent than the run's.
func (r *run) isHanded() bool { return r.next != r.agent.Name }

// follow lets the run go on under the agent that the thread has passed to, when its step is complete. waits is true
// when that agent needs variables first, for which the run has been parked.
func (r *run) follow(ctx context.Context) (waits bool, err error) {
	t, err := r.engine.store.Thread(ctx, r.thread.ID)
	if err != nil {
		return false, err
	}
	agent, err := r.engine.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return false, fmt.Errorf("agent %s, which thread %s has passed to: %w", t.Agent, t.ID, err)
	}
	if err := r.leaveExecution(ctx); err != nil {
		return false, err
	}
	r.checkpoint.Turn = checkpoint.Turn{Before: r.record.Steps, StepsB: r.checkpoint.Turn.StepsB}
	if last := r.conv.LastAnswer(r.record.ID); last != nil {
		r.checkpoint.Turn.After = last.ID // it was another agent's, whose rules are not this one's
	}
	r.checkpoint.Handoffs++
	r.record.Agent, r.record.State = agent.Name, r.checkpoint.Encode()
	s := r.newStep("handoff")
	s.checkpoint(r.record)
	s.saveScopes(false)
	if err := s.commit(ctx); err != nil {
		return false, err
	}
	r.takeOver(t, agent)
	return r.awaitEnv(ctx, nil)
}

// takeOver makes an agent the run's.
func (r *run) takeOver(t *store.Thread, agent *definition.Agent) {
	own := *t
	own.Agent = agent.Name // whose the code is that reads it
	r.thread, r.agent, r.next = &own, agent, t.Agent
	r.tools, r.envLoaded, r.current = nil, false, false
	r.hooks.announced = nil // of its own system prompt
}

// leaveExecution gives up the isolate of the agent that is left: the next one has code of its own. The session goes
// on, and so does what of state.context can be carried.
func (r *run) leaveExecution(ctx context.Context) error {
	if r.exec == nil {
		return nil
	}
	wait, cancel := context.WithTimeoutCause(ctx, afterResponse, errSlowWork)
	defer cancel()
	if err := r.exec.host.Session.Wait(wait); err != nil && !errors.Is(err, errSlowWork) {
		return err
	}
	r.snapshotContext(ctx)
	r.edited = r.exec.takeEdited() || r.edited
	r.session = r.exec.host.Session
	r.exec.close()
	r.exec = nil
	return nil
}
