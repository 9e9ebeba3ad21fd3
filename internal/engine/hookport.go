package engine

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// hookExecutions implements hooks.Executions.
type hookExecutions struct{ engine *Engine }

// Outside implements hooks.Executions.
func (h hookExecutions) Outside(ctx context.Context, t *store.Thread, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error) {
	e := h.engine
	ctx, leave := e.held.Attach(ctx, t.ID)
	defer leave()
	x, err := e.external(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	ops, err := do(x)
	if err != nil {
		return nil, err
	}
	return ops, x.SaveOutside(ctx)
}

// AtRest implements hooks.Executions.
func (h hookExecutions) AtRest(ctx context.Context, t *store.Thread, fence *store.Fence, agent *definition.Agent) (*codeexec.Execution, error) {
	e := h.engine
	var unreadable *thread.EnvUnreadableError
	if _, err := e.threads.LoadEnv(ctx, t); err != nil && !errors.As(err, &unreadable) {
		return nil, err
	}
	st, err := e.threads.Open(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return e.newExecution(ctx, t, st.WithFence(fence), agent, ""), nil
}

// hooksPort implements hooks.Port with a run.
type hooksPort struct{ *run }

// Agent implements hooks.Port.
func (p hooksPort) Agent() *definition.Agent { return p.agent }

// Side implements hooks.Port.
func (p hooksPort) Side() *definition.Side {
	if p.agent == nil {
		return nil
	}
	return p.side()
}

// Thread implements hooks.Port.
func (p hooksPort) Thread() *store.Thread { return p.thread }

// RunID implements hooks.Port.
func (p hooksPort) RunID() string { return p.record.ID }

// HookDepth implements hooks.Port.
func (p hooksPort) HookDepth() int { return p.checkpoint.HookDepth }

// Life implements hooks.Port.
func (p hooksPort) Life() context.Context { return p.life }

// Opened implements hooks.Port.
func (p hooksPort) Opened() *codeexec.Execution { return p.exec }

// Execution implements hooks.Port.
func (p hooksPort) Execution(ctx context.Context) (*codeexec.Execution, error) {
	return p.execution(ctx)
}

// Calling implements hooks.Port.
func (p hooksPort) Calling() { p.beginTurn() }

// Called implements hooks.Port.
func (p hooksPort) Called() { p.current = false }

// System implements hooks.Port.
func (p hooksPort) System(ctx context.Context) (string, error) { return p.system(ctx) }
