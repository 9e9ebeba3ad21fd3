package effects

import (
	"cmp"
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

// While a firing waits, it is looked at again after firstWait, and later after up to longestWait.
const (
	firstWait   = time.Second
	longestWait = 30 * time.Second
)

// mostEnds is how often the manager may end while a handler runs before the handler is not run again. It bounds what a handler that ends the
// manager can do. It is more than the attempts of a handler that could not run, because managers end for reasons of their own, several
// times within a minute while a node fails, and the handler has then perhaps not even begun.
const mostEnds = 10

// outcome decides what is recorded of an attempt that ended with err.
func (w *Worker) outcome(f *store.Firing, target Target, err error) store.FiringEnd {
	end := store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: store.FiringFailed, Counts: target.Counts}
	var final *FinalError
	var canceled *CanceledError
	var handler *HandlerError
	var service *ServiceError
	var wait *WaitError
	var notReady *definition.NotReadyError
	var cut *cutError
	switch {
	case err == nil:
		end.Status = store.FiringSucceeded
	case errors.As(err, &canceled):
		end.Status, end.Error = store.FiringCanceled, canceled.Error()
	case errors.As(err, &final):
		end.Error = final.Error()
	case errors.As(err, &wait), errors.As(err, &notReady):
		end.Status, end.Waiting, end.RetryAfter, end.Error = store.FiringPending, err.Error(), w.wait(f), f.Error
	case errors.As(err, &cut), errors.Is(err, store.ErrUnavailable):
		end.Status, end.Waiting, end.RetryAfter, end.Error, end.Began = store.FiringPending, err.Error(), w.wait(f), f.Error, cut != nil
	case errors.As(err, &service):
		policy := w.opts.Retry
		if target.Retry != nil {
			policy = *target.Retry
			policy.Attempts = cmp.Or(policy.Attempts, w.opts.Retry.Attempts)
		}
		end.Error = service.Error()
		if f.Attempts < policy.Attempts {
			end.Status, end.RetryAfter = store.FiringPending, max(policy.delay(f.Attempts), min(service.After, policy.longest()))
		} else if f.Attempts > 1 {
			end.Error = fmt.Sprintf("gave up after %d attempts: %s", f.Attempts, end.Error)
		}
	case errors.As(err, &handler):
		end.Error = handler.Error()
		if target.Retry != nil && f.Attempts < target.Retry.Attempts {
			end.Status, end.RetryAfter = store.FiringPending, target.Retry.delay(f.Attempts)
		} else if f.Attempts > 1 {
			end.Error = fmt.Sprintf("gave up after %d attempts: %s", f.Attempts, end.Error)
		}
	case f.Attempts >= w.attempts(target):
		end.Error = fmt.Sprintf("gave up after %d attempts: %v", f.Attempts, err)
	default:
		end.Status, end.Error, end.RetryAfter = store.FiringPending, err.Error(), w.opts.Retry.delay(f.Attempts)
	}
	return end
}

// attempts returns how often a firing is attempted in all.
func (w *Worker) attempts(target Target) int {
	if target.Retry != nil {
		return max(w.opts.Retry.Attempts, target.Retry.Attempts)
	}
	return w.opts.Retry.Attempts
}

// wait returns the time until a waiting firing is looked at again. It grows with the time that the firing has waited.
func (w *Worker) wait(f *store.Firing) time.Duration {
	waited := w.opts.Clock.Since(time.UnixMicro(f.FiredAt))
	return min(max(firstWait, waited/4), longestWait)
}

// attempt carries a firing out.
func (w *Worker) attempt(ctx context.Context, f *store.Firing, target Target, log *Log) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error(fmt.Errorf("panic: %v", p), "an effect failed because the engine panicked", "effect", f.Effect, "stack", string(debug.Stack()))
			err = &FinalError{"internal error: see the manager's log"}
		}
	}()
	if f.Attempts > max(w.attempts(target), mostEnds) {
		return &FinalError{fmt.Sprintf("the manager ended %d times while the handler ran: it is not tried again", f.Attempts-1)}
	}
	if target.Deadline > 0 && f.Attempts == 1 && f.StartedAt == 0 {
		if late := w.opts.Clock.Since(time.UnixMicro(f.Due)); late > target.Deadline {
			return &FinalError{fmt.Sprintf("it could not begin within %s of its due time%s", target.Deadline, because(f.Waiting))}
		}
	}
	c := Call{Firing: f, Target: target, Key: idempotencyKey(f), HookDepth: f.HookDepth, Log: log}
	if c.Thread, err = w.thread(ctx, f); err != nil {
		return err
	}
	if target.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, target.Timeout, errTimeout)
		defer cancel()
	}
	err = w.run(ctx, &c)
	var wait *WaitError
	if errors.Is(err, store.ErrUnavailable) && !errors.As(err, &wait) {
		return &cutError{err}
	}
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return &HandlerError{fmt.Sprintf("it did not end within %s, which spec.timeout allows", target.Timeout)}
	}
	return err
}

// cutError means that the store was not available while a firing was carried out. Nobody knows how far it came, so it is carried out
// again, under the same key, once the store is back. That is no attempt, because it says nothing about the handler.
type cutError struct{ err error }

func (e *cutError) Error() string {
	return "the platform could not go on, and the handler runs again: " + e.err.Error()
}

func (e *cutError) Unwrap() error { return e.err }

var errTimeout = errors.New("the firing's timeout has passed")

func because(waiting string) string {
	if waiting == "" {
		return ""
	}
	return ": " + waiting
}

// thread returns the thread of a firing; nil if it has none.
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
