package executions

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// familyOf opens the other threads of a thread's tree for code (SUB-05).
type familyOf struct {
	service *Service
	thread  *store.Thread
}

// Open implements tool.Family. The id comes from code, so each call checks anew that the caller may reach the thread.
func (f *familyOf) Open(ctx context.Context, threadID string) (*tool.Host, func(context.Context) error, error) {
	s, own := f.service, f.thread
	t, err := s.opts.Store.Thread(ctx, threadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, nil, err
	}
	// Threads that do not exist and threads of other trees get the same error, so that code cannot probe ids.
	if err != nil || t.RootID != own.RootID || t.Namespace != own.Namespace || t.RetainedAt != 0 {
		return nil, nil, fmt.Errorf("%w: there is no thread %s among the parents and children of this one", store.ErrNotFound, threadID)
	}
	st := s.opts.Threads.StateOf(t)
	// Load its secrets before any of its code runs, so that they are redacted (ENV-03).
	if _, err := s.opts.Threads.LoadEnv(ctx, t); err != nil {
		return nil, nil, err
	}
	// If the agent is not ready there are no tools to invoke. Everything else works.
	agent, err := s.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if err != nil && !errors.As(err, &notReady) {
		return nil, nil, err
	}
	ctx, leave := s.opts.Active.Attach(ctx, t.ID)
	x := s.New(ctx, t, st, agent, "")
	return x.Host, func(ctx context.Context) error {
		defer leave()
		defer x.Close()
		return x.SaveExternal(ctx)
	}, nil
}
