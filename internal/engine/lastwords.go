package engine

import (
	"context"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/engine/ending"
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
	r.hooks.TellLast(ctx, func(ctx context.Context) error { return r.code.Reach(ctx, r.hooks.Pending()[0].HeldUntil != 0) })
}
