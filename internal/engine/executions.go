package engine

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/handlers"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// newExecution returns a new execution with everything that its tools may use. runID is "" outside of a run. When ctx ends, its code
// ends too.
func (e *Engine) newExecution(ctx context.Context, t *store.Thread, st *thread.State, agent *definition.Agent, runID string) *codeexec.Execution {
	x := e.env.New(ctx, t, st, agent, runID, e.newLines(t, st, runID))
	st = x.Host.State
	x.Host.Family = &familyOf{engine: e, thread: t}
	x.Host.Effects = &effectsOf{engine: e, thread: t}
	x.Host.Children = &childrenOf{engine: e, thread: t, state: st, agent: agent, side: x.Side, runID: runID}
	x.Host.Definitions = &definitionsOf{engine: e, namespace: t.Namespace}
	x.Host.Handoffs = &handoffsOf{engine: e, thread: t, agent: agent}
	x.Host.Lifecycle = &lifecycleOf{engine: e, thread: t, state: st}
	if agent != nil && agent.Memory != nil {
		x.Host.Memory = &memoryOf{engine: e, thread: t, agent: agent, runID: runID}
	}
	handlers.Add(x, runID)
	if agent == nil {
		return x
	}
	if e.related != nil {
		x.Host.Others = &othersOf{engine: e, thread: t, state: st, agent: agent, runID: runID}
	}
	hooks.AddHooks(x)
	if h := e.hooks.Within(x); h != nil {
		x.Host.State = st.WithHooks(h)
	}
	return x
}

// apart opens executions of threads apart from their runs.
type apart struct{ engine *Engine }

// Attach returns a context that ends when the thread is terminated or purged. Call leave when the work is done.
func (a apart) Attach(ctx context.Context, threadID string) (attached context.Context, leave func()) {
	return a.engine.held.Attach(ctx, threadID)
}

// Apart returns an execution apart from the runs of the thread. It has no tools if the thread's agent is not ready.
func (a apart) Apart(ctx context.Context, t *store.Thread) (*codeexec.Execution, error) {
	e := a.engine
	st, err := e.threads.Open(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if _, err := e.threads.LoadEnv(ctx, t); err != nil {
		return nil, err
	}
	// Without an agent the sandbox comes from the default pool, and there are no tools to call.
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if err != nil && !errors.As(err, &notReady) {
		return nil, err
	}
	return e.newExecution(ctx, t, st, agent, ""), nil
}
