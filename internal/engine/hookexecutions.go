package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// hookExecutions implements hooks.Executions. The service of executions needs the hooks, so it is made after them.
type hookExecutions struct{ engine *Engine }

// WithExternal implements hooks.Executions.
func (h hookExecutions) WithExternal(ctx context.Context, t *store.Thread, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error) {
	return h.engine.executions.WithExternal(ctx, t, do)
}

// AtRest implements hooks.Executions.
func (h hookExecutions) AtRest(ctx context.Context, t *store.Thread, fence *store.Fence, agent *definition.Agent) (*codeexec.Execution, error) {
	return h.engine.executions.AtRest(ctx, t, fence, agent)
}
