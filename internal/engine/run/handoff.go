package run

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
)

// A handoff (AGT-03) changes the agent in the thread's row, no matter what causes it. A run follows the row between two
// steps. The agent that asked for the calls of a step also makes them. The run keeps the name of that agent until all of
// the calls have their results, so that a run that was cut off knows whose calls they are.

// continueWithAgent continues the run with the agent that the thread was handed over to. The caller has completed the step. waits is
// true if that agent needs variables first: the run is parked then.
func (r *run) continueWithAgent(ctx context.Context) (waits bool, err error) {
	t, err := r.service.opts.Store.Thread(ctx, r.Thread.ID)
	if err != nil {
		return false, err
	}
	agent, err := r.service.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return false, fmt.Errorf("agent %s, to which thread %s was handed over: %w", t.Agent, t.ID, err)
	}
	if err := r.code.Leave(ctx); err != nil {
		return false, err
	}
	r.State.Turn = runstate.Turn{Before: r.record.Steps, StepsB: r.State.Turn.StepsB}
	if last := r.conv.LastAnswer(r.record.ID); last != nil {
		r.State.Turn.After = last.ID // another agent wrote it: the rules of this one do not apply to it
	}
	r.State.Handoffs++
	r.record.Agent, r.record.State = agent.Name, r.State.Encode()
	if err := r.newTransaction("handoff").save(ctx); err != nil {
		return false, err
	}
	r.takeOver(t, agent)
	return r.awaitEnv(ctx, nil)
}

// takeOver makes agent the agent of the run.
func (r *run) takeOver(t *store.Thread, agent *definition.Agent) {
	own := *t
	own.Agent = agent.Name // code of that agent reads it
	r.Thread, r.Agent, r.Next = &own, agent, t.Agent
	r.code.Tools, r.code.EnvLoaded, r.current = nil, false, false
	r.hooks.TakeAgent()
}
