package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// attempt carries a firing out.
func (w *Worker) attempt(ctx context.Context, c *Call) (err error) {
	f, target := c.Firing, c.Target
	defer func() {
		if p := recover(); p != nil {
			w.log.Error(fmt.Errorf("panic: %v", p), "an effect failed because the engine panicked", append(logValues(c), "stack", string(debug.Stack()))...)
			err = &FinalError{"internal error: see the manager's log"}
		}
	}()
	if f.Attempts > max(w.attempts(target), mostEnds) {
		return &FinalError{fmt.Sprintf("the manager ended %d times while the handler ran: it is not tried again", f.Attempts-1)}
	}
	if target.Deadline > 0 && f.Attempts == 1 && f.StartedAt == 0 {
		if late := w.opts.Clock.Since(time.UnixMicro(f.Due)) - target.Jitter; late > target.Deadline {
			return &MissedError{MissedText(target.Deadline, f.Waiting)}
		}
	}
	if c.Thread, err = w.thread(ctx, f); err != nil {
		return err
	}
	waits := w.newWaits(ctx, f)
	defer func() {
		waits.end()
		c.begun = c.begun || waits.begun
	}()
	c.Waits, c.begun = waits.tell, f.StartedAt != 0 || !target.needsSandbox()
	if target.Timeout > 0 && !target.needsSandbox() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, target.Timeout, errTimeout)
		defer cancel()
	}
	err = w.run(ctx, c)
	var wait *WaitError
	if errors.Is(err, store.ErrUnavailable) && !errors.As(err, &wait) {
		return &cutError{err}
	}
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		if service := (*ServiceError)(nil); errors.As(err, &service) { // it has not answered in time
			return &ServiceError{Text: target.TimeoutText()}
		}
		return &HandlerError{target.TimeoutText()}
	}
	return err
}

// cutError means that the store was not available while a firing was carried out. How far it came is unknown, so it is carried out
// again, under the same key, once the store is back. This does not count as an attempt, because it says nothing about the handler.
type cutError struct{ err error }

func (e *cutError) Error() string {
	return "the manager could not finish the attempt, and the handler runs again: " + e.err.Error()
}

func (e *cutError) Unwrap() error { return e.err }

var errTimeout = errors.New("the firing's timeout has passed")

// MissedText says that a firing could not begin in time, and what it waited for if that is known.
func MissedText(deadline time.Duration, waiting string) string {
	text := fmt.Sprintf("it could not begin within %s of its due time", deadline)
	if waiting != "" {
		text += ": " + waiting
	}
	return text
}

// thread returns the thread of a firing; nil if it has none. A *CanceledError says that the thread is gone, or has ended.
func (w *Worker) thread(ctx context.Context, f *store.Firing) (*store.Thread, error) {
	if f.ThreadID == "" {
		return nil, nil
	}
	t, err := w.store.Thread(ctx, f.ThreadID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, &CanceledError{"the thread is gone"}
	case err != nil:
		return nil, err
	case t.Namespace != f.Namespace: // it does not exist for the effect
		return nil, &CanceledError{"the thread is gone"}
	case t.TerminatedAt != 0, t.RetainedAt != 0, t.Deleting:
		return nil, &CanceledError{"the thread is terminated"}
	}
	return t, nil
}

func (w *Worker) run(ctx context.Context, c *Call) error {
	switch {
	case c.Target.Message != nil:
		return w.opts.Runner.QueueMessage(ctx, *c)
	case c.Target.Queue != nil:
		return w.opts.Runner.QueueTool(ctx, *c)
	case c.Target.Tool != nil:
		return w.opts.Runner.CallTool(ctx, *c)
	}
	var err error
	if c.Effect, err = w.opts.Definitions.Effect(ctx, c.Firing.Namespace, c.Firing.Effect); err != nil {
		return err
	}
	if c.Args, err = arguments(c.Effect, c.Firing.Args); err != nil {
		return &FinalError{err.Error()}
	}
	return w.opts.Runner.RunEffect(ctx, *c)
}

// CheckArgs returns an error when the arguments of a firing are over the limit.
func CheckArgs(args json.RawMessage) error {
	if len(args) > tool.MaxArgumentBytes {
		return fmt.Errorf("the arguments have %d bytes, more than the limit of %d: put large data into a file and give its path", len(args), tool.MaxArgumentBytes)
	}
	return nil
}

// arguments decodes the arguments of an effect as its schema says.
func arguments(e *definition.Effect, args json.RawMessage) (any, error) {
	schema, err := tool.CompileSchema(parameters(e))
	if err != nil {
		return nil, fmt.Errorf("effect %s: spec.parameters: %w", e.ObjectName, err)
	}
	return schema.Decode(string(args))
}
