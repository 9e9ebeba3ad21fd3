package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/engine/cancelcause"
)

// drain says whether this replica prepares to end.
type drain struct {
	begun atomic.Bool
	// started is closed once Start has started all loops.
	started chan struct{}
	// working are the loops that hand out threads and runs. They end once nothing is under way and nothing is handed out any more.
	working sync.WaitGroup
}

// Drain prepares the end of this replica. From now on it begins nothing: it takes no lease and no claim, starts no call of a model or a
// tool, and follows no run with tasks. What is under way goes on, and is recorded when it ends. A run then gives its lease back, so
// that another replica continues it at once, and tasks that follow runs pass to the other replicas. Drain returns when nothing is under
// way any more. It returns an error when ctx ends before that. What is left then is cut off when the context of Start ends.
func (e *Engine) Drain(ctx context.Context) error {
	e.drain.begun.Store(true)
	e.queue.ShutDown()
	e.effects.Drain()
	e.postRun.Drain()
	select {
	case <-e.drain.started:
	default:
		return nil
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.drain.working.Wait()
		e.effects.Wait()
		<-e.active.BackgroundDone() // code that runs for a request
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkInterrupted returns the error with which a run ends here when the replica prepares to end; nil when the run may begin its next step.
// What the run has done is recorded, so the replica that continues it repeats nothing.
func (d *drain) checkInterrupted() error {
	if d.begun.Load() {
		return cancelcause.ErrShutdown
	}
	return nil
}
