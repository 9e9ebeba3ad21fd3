// Package effects runs the handlers of effects that are due, apart from the conversation and without the lease of its thread (EFF-02).
// It claims firings in the store, has their handlers called, and records how they ended. It knows neither runs nor sandboxes: a
// Runner calls the code.
package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Definitions resolves effects.
type Definitions interface {
	// Effect resolves an effect by its plain or qualified name.
	Effect(ctx context.Context, namespace, name string) (*definition.Effect, error)
}

// Runner calls the code of effects.
type Runner interface {
	// RunEffect calls the handler of an effect and returns when it has ended. A *FinalError is not retried. Any other error
	// means that the handler could not run, or that nobody knows how it ended, so RunEffect is called again with the same key.
	RunEffect(ctx context.Context, c Call) error
}

// Call is one call of the handler of an effect.
type Call struct {
	// Thread is a living thread, as it was when its firing was claimed.
	Thread *store.Thread
	Effect *definition.Effect
	// Args are the firing's arguments, which match the effect's schema.
	Args any
	// Key is the idempotency key. It is the same for every attempt of a firing. The ids of everything that the handler causes
	// derive from it.
	Key string
	// HookDepth is the number of hooks in the chain of causes that led to the effect.
	HookDepth int
}

// FinalError is a failure that is not retried.
type FinalError struct {
	// Text says what failed, for people.
	Text string
}

// Error implements error.
func (e *FinalError) Error() string { return e.Text }

// Retry is the retry policy of firings whose handler could not run.
type Retry struct {
	// Attempts is how often a firing is attempted.
	Attempts int
	// First is the delay before the second attempt. It doubles with each attempt.
	First time.Duration
}

// delay returns the delay after a number of attempts.
func (r Retry) delay(attempts int) time.Duration { return r.First << max(attempts-1, 0) }

// Options of a Worker. All are required.
type Options struct {
	Store       store.Store
	Definitions Definitions
	Runner      Runner
	Clock       clock.WithTickerAndDelayedExecution
	Log         logr.Logger
	// Owner names this replica in claims.
	Owner string
	// Workers is how many handlers may run at once.
	Workers int
	// ClaimTTL is the time after which others may claim a firing whose claim is not renewed.
	ClaimTTL time.Duration
	Retry    Retry
	// Fault is called around durable writes.
	Fault func(point string)
}

// Worker claims firings that are due and has their handlers called. A claim holds a firing, and is renewed while the handler
// runs. After a crash the claim expires, and the handler runs again with the same idempotency key (EFF-04). A Worker is safe for
// concurrent use.
type Worker struct {
	opts   Options
	store  store.Store
	log    logr.Logger
	fault  func(point string)
	wakeup chan struct{}
	done   chan struct{} // a slot became free

	mu      sync.Mutex // guards running
	running map[store.FiringKey]*claim
	group   sync.WaitGroup
}

// NewWorker returns a worker that does nothing until Run is called.
func NewWorker(o Options) *Worker {
	return &Worker{
		opts: o, store: o.Store, log: o.Log, fault: o.Fault, wakeup: make(chan struct{}, 1), done: make(chan struct{}, 1),
		running: map[store.FiringKey]*claim{},
	}
}

// Wake makes the worker look for firings, because one was recorded.
func (w *Worker) Wake() { signal(w.wakeup) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a signal is waiting already
	}
}

// claim is the claim of a firing that is under way here. Renewals stop before the end of the firing is recorded. A
// later renewal would mark the firing as under way again, and overwrite what a failed attempt has recorded.
type claim struct {
	mu   sync.Mutex
	over bool
}

// renew calls extend, which extends the claim, unless the claim is over.
func (c *claim) renew(extend func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	return extend()
}

// end waits for a renewal that is being written, and prevents any later one.
func (c *claim) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// Run runs firings until ctx ends. It returns when none is under way any more.
func (w *Worker) Run(ctx context.Context) {
	defer w.group.Wait()
	ticker := w.opts.Clock.NewTicker(w.opts.ClaimTTL / 3)
	defer ticker.Stop()
	for {
		w.claim(ctx)
		select {
		case <-ctx.Done():
			return
		case <-w.wakeup:
		case <-w.done:
		case <-ticker.C():
			w.renew(ctx)
		}
	}
}

// underWay returns the firings whose handlers run here.
func (w *Worker) underWay() map[store.FiringKey]*claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.running)
}

// claim claims as many firings as there are free slots, and runs them.
func (w *Worker) claim(ctx context.Context) {
	running := w.underWay()
	free := w.opts.Workers - len(running)
	if free <= 0 || ctx.Err() != nil {
		return
	}
	firings, err := w.store.ClaimFirings(ctx, w.opts.Owner, w.opts.ClaimTTL, free, slices.Collect(maps.Keys(running))...)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Error(err, "cannot look for effects that are due")
			w.later(w.opts.Retry.First)
		}
		return
	}
	for _, f := range firings {
		key, c := store.FiringKey{EffectID: f.EffectID, Due: f.Due}, &claim{}
		w.mu.Lock()
		w.running[key] = c
		w.mu.Unlock()
		w.group.Go(func() {
			defer func() {
				w.mu.Lock()
				delete(w.running, key)
				w.mu.Unlock()
				signal(w.done)
			}()
			w.fire(ctx, f, c)
		})
	}
	if len(firings) == free {
		signal(w.wakeup) // there may be more
	}
}

// renew extends the claims of the firings that run here. A pending firing is not claimed by others for ClaimTTL.
func (w *Worker) renew(ctx context.Context) {
	for k, c := range w.underWay() {
		if err := c.renew(func() error {
			return w.store.FinishFiring(ctx, k.EffectID, k.Due, store.FiringPending, "", w.opts.ClaimTTL)
		}); err != nil && ctx.Err() == nil {
			w.log.Error(err, "cannot renew the claim of an effect", "effect", k.EffectID)
		}
	}
}

// later looks for due effects again after a delay.
func (w *Worker) later(d time.Duration) { w.opts.Clock.AfterFunc(d, w.Wake) }

// fire runs one firing and records its outcome.
func (w *Worker) fire(ctx context.Context, f store.Firing, c *claim) {
	log := w.log.WithValues("namespace", f.Namespace, "name", f.Name, "effect", f.Effect, "thread", f.ThreadID)
	status, text, retry := store.FiringSucceeded, "", time.Duration(0)
	err := w.attempt(ctx, f)
	var final *FinalError
	switch {
	case ctx.Err() != nil:
		return // the claim expires, and the firing can be claimed again
	case err == nil:
	case errors.As(err, &final):
		status, text = store.FiringFailed, final.Error()
	case f.Attempts >= w.opts.Retry.Attempts:
		status, text = store.FiringFailed, fmt.Sprintf("gave up after %d attempts: %v", f.Attempts, err)
	default:
		status, text, retry = store.FiringPending, err.Error(), w.opts.Retry.delay(f.Attempts)
		log.Info("effect will be tried again", "attempt", f.Attempts, "error", text)
	}
	w.fault("effect.finish.before")
	c.end()
	if err := w.store.FinishFiring(ctx, f.EffectID, f.Due, status, text, retry); err != nil {
		log.Error(err, "cannot record the end of an effect: it may run again")
		return
	}
	if status == store.FiringPending {
		w.later(retry)
	}
}

// attempt runs the handler. An *FinalError is final. Any other error is retried.
func (w *Worker) attempt(ctx context.Context, f store.Firing) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error(fmt.Errorf("panic: %v", p), "an effect failed because the engine panicked", "effect", f.Effect, "stack", string(debug.Stack()))
			err = &FinalError{"internal error: see the manager's log"}
		}
	}()
	if f.Attempts > w.opts.Retry.Attempts {
		return &FinalError{fmt.Sprintf("the manager ended %d times while the handler ran: it is not tried again", f.Attempts-1)}
	}
	t, err := w.store.Thread(ctx, f.ThreadID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &FinalError{"the thread is gone"}
	case err != nil:
		return err
	case t.TerminatedAt != 0, t.RetainedAt != 0:
		return &FinalError{"the thread is terminated"}
	}
	effect, err := w.opts.Definitions.Effect(ctx, f.Namespace, f.Effect)
	if err != nil {
		return err
	}
	schema, err := tool.CompileSchema(parameters(effect))
	if err != nil {
		return &FinalError{fmt.Sprintf("effect %s: spec.parameters: %v", effect.ObjectName, err)}
	}
	args, err := schema.Decode(string(f.Args))
	if err != nil {
		return &FinalError{err.Error()}
	}
	return w.opts.Runner.RunEffect(ctx, Call{Thread: t, Effect: effect, Args: args, Key: idempotencyKey(f), HookDepth: f.HookDepth})
}

// parameters returns the schema of an effect's arguments; nil if it declares none.
func parameters(e *definition.Effect) json.RawMessage {
	if e.Spec.Parameters == nil {
		return nil
	}
	return e.Spec.Parameters.Raw
}

// idempotencyKey returns the idempotency key of a firing: its effect and due time.
func idempotencyKey(f store.Firing) string { return fmt.Sprintf("effect:%s:%d", f.EffectID, f.Due) }
