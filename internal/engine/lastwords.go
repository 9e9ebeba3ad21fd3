package engine

import (
	"context"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/engine/ending"
	"github.com/skein-dev/skein/internal/engine/hooks"
)

// lastWordsTime bounds how long the hooks for the final messages of a terminated thread may take.
const lastWordsTime = 2 * time.Minute

// pastTermination returns a context like ctx that survives the termination of the thread, which its final messages
// bring about. It ends with the engine, since ctx no longer shows that once the thread was terminated.
func (e *Engine) pastTermination(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordsTime)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), ending.ErrTerminal) {
			cancel()
		}
	})
	stopEnding := context.AfterFunc(e.life, cancel)
	return out, func() {
		stop()
		stopEnding()
		cancel()
	}
}

// tellLast calls the hooks for the final messages of a thread that ends with them.
func (r *run) tellLast(ctx context.Context) {
	if len(r.hooks.Pending()) == 0 || ctx.Err() != nil && !errors.Is(context.Cause(ctx), ending.ErrTerminal) {
		return
	}
	ctx, cancel := r.engine.pastTermination(ctx)
	defer cancel()
	r.hooks.TellLast(ctx, r.reachLast)
}

// reachLast ensures that hooks can be called after the end of the run: in the run's isolate while it is open, else in
// one that does not end with the run. For held hooks it waits for that isolate as long as a thread at rest would.
func (r *run) reachLast(ctx context.Context) error {
	if !r.Agent.HasHooks() {
		return nil // the hook calls are dropped
	}
	if r.exec == nil || r.life.Err() != nil || !r.exec.Code.Opened() {
		if r.life = ctx; r.exec != nil {
			r.session = r.exec.Host.Session
			r.exec.Close()
			r.exec = nil
		}
	}
	x, err := r.execution(ctx)
	if err != nil || r.hooks.Pending()[0].HeldUntil == 0 || x.Code.Opened() {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, hooks.RetryWait)
	defer cancel()
	_, _, err = x.Code.Isolate(wait, false)
	return err
}
