package run

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

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
func (p hooksPort) HookDepth() int { return p.State.HookDepth }

// Life implements hooks.Port.
func (p hooksPort) Life() context.Context { return p.code.Life }

// OpenedExecution implements hooks.Port.
func (p hooksPort) OpenedExecution() *codeexec.Execution { return p.code.Exec }

// Execution implements hooks.Port.
func (p hooksPort) Execution(ctx context.Context) (*codeexec.Execution, error) {
	return p.code.Execution(ctx)
}

// BeforeCall implements hooks.Port.
func (p hooksPort) BeforeCall() { p.code.BeginTurn(p.conv) }

// AfterCall implements hooks.Port.
func (p hooksPort) AfterCall() { p.current = false }

// System implements hooks.Port.
func (p hooksPort) System(ctx context.Context) (string, error) {
	return p.requests.System(ctx, p.record.ID)
}
