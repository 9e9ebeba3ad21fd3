package executions

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

// New returns a new execution with everything that its tools may use. runID is "" outside of a run. When ctx ends, its code
// ends too.
func (s *Service) New(ctx context.Context, t *store.Thread, st *thread.State, agent *definition.Agent, runID string) *codeexec.Execution {
	x := s.opts.Env.New(ctx, t, st, agent, runID, s.lines(t, st, runID))
	st = x.Host.State
	x.Host.Family = &familyOf{service: s, thread: t}
	x.Host.Effects = &effectsOf{service: s, thread: t}
	x.Host.Children = &childrenOf{service: s, thread: t, state: st, agent: agent, side: x.Side, runID: runID}
	x.Host.Definitions = s.Definitions(t.Namespace)
	x.Host.Handoffs = s.Handoffs(t, agent, 0)
	x.Host.Lifecycle = &lifecycleOf{service: s, thread: t, state: st}
	if agent != nil && agent.Memory != nil {
		x.Host.Memory = s.opts.Memory.Of(t, agent, runID)
	}
	handlers.Add(x, runID)
	if agent == nil {
		return x
	}
	if s.opts.Related != nil {
		x.Host.Others = &othersOf{service: s, thread: t, state: st, agent: agent, runID: runID}
	}
	hooks.AddHooks(x)
	if h := s.opts.Hooks.MessageHooksIn(x); h != nil {
		x.Host.State = st.WithHooks(h)
	}
	return x
}

// Attach returns a context that ends when the thread is terminated or purged. Call leave when the work is done.
func (s *Service) Attach(ctx context.Context, threadID string) (attached context.Context, leave func()) {
	return s.opts.Active.Attach(ctx, threadID)
}

// NewApart returns an execution apart from the runs of the thread. It has no tools if the thread's agent is not ready.
func (s *Service) NewApart(ctx context.Context, t *store.Thread) (*codeexec.Execution, error) {
	if _, err := s.opts.Threads.LoadEnv(ctx, t); err != nil {
		return nil, err
	}
	// Without an agent the sandbox comes from the default pool, and there are no tools to call.
	agent, err := s.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if err != nil && !errors.As(err, &notReady) {
		return nil, err
	}
	return s.New(ctx, t, s.opts.Threads.StateOf(t), agent, ""), nil
}

// WithExternal has do use an execution apart from the runs of the thread, and saves what code has changed. It implements
// hooks.Executions.
func (s *Service) WithExternal(ctx context.Context, t *store.Thread, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error) {
	ctx, leave := s.opts.Active.Attach(ctx, t.ID)
	defer leave()
	x, err := s.External(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	ops, err := do(x)
	if err != nil {
		return nil, err
	}
	return ops, x.SaveExternal(ctx)
}

// AtRest returns an execution for a thread at rest, whose lease the caller holds. It implements hooks.Executions.
func (s *Service) AtRest(ctx context.Context, t *store.Thread, fence *store.Fence, agent *definition.Agent) (*codeexec.Execution, error) {
	var unreadable *thread.EnvUnreadableError
	if _, err := s.opts.Threads.LoadEnv(ctx, t); err != nil && !errors.As(err, &unreadable) {
		return nil, err
	}
	return s.New(ctx, t, s.opts.Threads.StateOf(t).WithFence(fence), agent, ""), nil
}
