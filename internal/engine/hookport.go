package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// hookExecutions implements hooks.Executions. The service of executions needs the hooks, so it is made after them.
type hookExecutions struct{ engine *Engine }

// Outside implements hooks.Executions.
func (h hookExecutions) Outside(ctx context.Context, t *store.Thread, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error) {
	return h.engine.executions.Outside(ctx, t, do)
}

// AtRest implements hooks.Executions.
func (h hookExecutions) AtRest(ctx context.Context, t *store.Thread, fence *store.Fence, agent *definition.Agent) (*codeexec.Execution, error) {
	return h.engine.executions.AtRest(ctx, t, fence, agent)
}

// hooksPort implements hooks.Port with a run.
type hooksPort struct{ *run }

// Agent implements hooks.Port.
func (p hooksPort) Agent() *definition.Agent { return p.run.Agent }

// Side implements hooks.Port.
func (p hooksPort) Side() *definition.Side {
	if p.run.Agent == nil {
		return nil
	}
	return p.run.Side()
}

// Thread implements hooks.Port.
func (p hooksPort) Thread() *store.Thread { return p.run.Thread }

// RunID implements hooks.Port.
func (p hooksPort) RunID() string { return p.record.ID }

// HookDepth implements hooks.Port.
func (p hooksPort) HookDepth() int { return p.Checkpoint.HookDepth }

// Life implements hooks.Port.
func (p hooksPort) Life() context.Context { return p.code.Life }

// Opened implements hooks.Port.
func (p hooksPort) Opened() *codeexec.Execution { return p.code.Exec }

// Execution implements hooks.Port.
func (p hooksPort) Execution(ctx context.Context) (*codeexec.Execution, error) {
	return p.code.Execution(ctx)
}

// Calling implements hooks.Port.
func (p hooksPort) Calling() { p.code.BeginTurn(p.conv) }

// Called implements hooks.Port.
func (p hooksPort) Called() { p.current = false }

// System implements hooks.Port.
func (p hooksPort) System(ctx context.Context) (string, error) {
	return p.requests.System(ctx, p.record.ID)
}
