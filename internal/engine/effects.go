package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
)

// effectWorker runs the handlers of effects that are due, apart from the conversation and without its lease (EFF-02).
// A claim holds a firing, and is renewed while the handler runs. After a crash the claim expires, and the handler
// runs again with the same idempotency key (EFF-04).
type effectWorker struct {
	engine *Engine
	log    logr.Logger
	wakeup chan struct{}
	done   chan struct{} // a slot became free

	mu      sync.Mutex // guards running
	running map[store.FiringKey]*claim
	group   sync.WaitGroup
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

func newEffectWorker(e *Engine) *effectWorker {
	return &effectWorker{
		engine: e, log: e.log.WithName("effects"), wakeup: make(chan struct{}, 1), done: make(chan struct{}, 1),
		running: map[store.FiringKey]*claim{},
	}
}

func (w *effectWorker) wake() { signal(w.wakeup) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a signal is waiting already
	}
}

func (w *effectWorker) loop(ctx context.Context) {
	defer w.group.Wait()
	ticker := w.engine.opts.Clock.NewTicker(w.engine.opts.LeaseTTL / 3)
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
func (w *effectWorker) underWay() map[store.FiringKey]*claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.running)
}

// claim claims as many firings as there are free slots, and runs them.
func (w *effectWorker) claim(ctx context.Context) {
	running := w.underWay()
	free := w.engine.opts.EffectWorkers - len(running)
	if free <= 0 || ctx.Err() != nil {
		return
	}
	firings, err := w.engine.store.ClaimFirings(ctx, w.engine.opts.Owner, w.engine.opts.LeaseTTL, free, slices.Collect(maps.Keys(running))...)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Error(err, "cannot look for effects that are due")
			w.later(w.engine.opts.EffectRetry.First)
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

// renew extends the claims of the firings that run here. A pending firing is not claimed by others for LeaseTTL.
func (w *effectWorker) renew(ctx context.Context) {
	for k, c := range w.underWay() {
		if err := c.renew(func() error {
			return w.engine.store.FinishFiring(ctx, k.EffectID, k.Due, store.FiringPending, "", w.engine.opts.LeaseTTL)
		}); err != nil && ctx.Err() == nil {
			w.log.Error(err, "cannot renew the claim of an effect", "effect", k.EffectID)
		}
	}
}

// later looks for due effects again after a delay.
func (w *effectWorker) later(d time.Duration) { w.engine.opts.Clock.AfterFunc(d, w.wake) }

// fire runs one firing and records its outcome.
func (w *effectWorker) fire(ctx context.Context, f store.Firing, c *claim) {
	log := w.log.WithValues("namespace", f.Namespace, "name", f.Name, "effect", f.Effect, "thread", f.ThreadID)
	status, text, retry := store.FiringSucceeded, "", time.Duration(0)
	err := w.attempt(ctx, f)
	var final *effectError
	switch {
	case ctx.Err() != nil:
		return // the claim expires, and the firing can be claimed again
	case err == nil:
	case errors.As(err, &final):
		status, text = store.FiringFailed, final.Error()
	case f.Attempts >= w.engine.opts.EffectRetry.Attempts:
		status, text = store.FiringFailed, fmt.Sprintf("gave up after %d attempts: %v", f.Attempts, err)
	default:
		status, text, retry = store.FiringPending, err.Error(), w.engine.opts.EffectRetry.delay(f.Attempts)
		log.Info("effect will be tried again", "attempt", f.Attempts, "error", text)
	}
	w.engine.fault("effect.finish.before")
	c.end()
	if err := w.engine.store.FinishFiring(ctx, f.EffectID, f.Due, status, text, retry); err != nil {
		log.Error(err, "cannot record the end of an effect: it may run again")
		return
	}
	if status == store.FiringPending {
		w.later(retry)
	}
}

// effectError is a failure that is not retried.
type effectError struct{ text string }

func (e *effectError) Error() string { return e.text }

// attempt runs the handler. An *effectError is final. Any other error is retried.
func (w *effectWorker) attempt(ctx context.Context, f store.Firing) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error(fmt.Errorf("panic: %v", p), "an effect failed because the engine panicked", "effect", f.Effect, "stack", string(debug.Stack()))
			err = &effectError{"internal error: see the manager's log"}
		}
	}()
	if f.Attempts > w.engine.opts.EffectRetry.Attempts {
		return &effectError{fmt.Sprintf("the manager ended %d times while the handler ran: it is not tried again", f.Attempts-1)}
	}
	e := w.engine
	t, err := e.store.Thread(ctx, f.ThreadID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &effectError{"the thread is gone"}
	case err != nil:
		return err
	case t.TerminatedAt != 0, t.RetainedAt != 0:
		return &effectError{"the thread is terminated"}
	}
	effect, err := e.opts.Definitions.Effect(ctx, f.Namespace, f.Effect)
	if err != nil {
		return err
	}
	schema, err := tool.CompileSchema(raw(effect.Spec.Parameters))
	if err != nil {
		return &effectError{fmt.Sprintf("effect %s: spec.parameters: %v", effect.ObjectName, err)}
	}
	args, err := schema.Decode(string(f.Args))
	if err != nil {
		return &effectError{err.Error()}
	}
	return w.handler(ctx, f, t, effect, args)
}

// handler runs the effect's code in an isolate of its own in the thread's sandbox.
func (w *effectWorker) handler(ctx context.Context, f store.Firing, t *store.Thread, effect *definition.Effect, args any) error {
	e := w.engine
	st, err := e.threads.Open(ctx, t.ID)
	if err != nil {
		return err
	}
	if _, err := e.threads.LoadEnv(ctx, t); err != nil {
		return err
	}
	// Without an agent the sandbox comes from the default pool, and there are no tools to call.
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if err != nil && !errors.As(err, &notReady) {
		return err
	}
	ctx, leave := e.attach(ctx, t.ID)
	defer leave()
	x := e.newExecution(ctx, t, st, agent, "")
	defer x.close()
	module, timeout := "effects/"+effect.ObjectName, time.Duration(0)
	if effect.Spec.Timeout != nil {
		timeout = effect.Spec.Timeout.Duration
	}
	x.code.add(module, effect.Module, timeout)
	e.fault("effect.handler.before")
	_, err = x.host.Code.Invoke(withCausation(ctx, causation{depth: f.HookDepth}), idempotencyKey(f), module, args, timeout)
	e.fault("effect.handler.after")
	if err == nil {
		return x.saveOutside(ctx)
	}
	if errors.Is(context.Cause(ctx), errTerminal) {
		return &effectError{"the thread was terminated"}
	}
	x.code.lines.Fail("effect/"+effect.ObjectName, code.Explain(err))
	var gone *sandbox.IsolateGoneError
	if errors.As(err, &gone) && gone.Status == sandbox.StatusTerminated && !pastWallTime(gone) {
		return errors.New(code.Explain(err)) // the sandbox was lost: retry, since delivery is at least once
	}
	var thrown *sandbox.Error
	if gone != nil || errors.As(err, &thrown) || errors.Is(err, errCodeTimeout) {
		return &effectError{code.Explain(err)}
	}
	return err
}

// idempotencyKey returns the key of a firing: its effect and due time. The ids of everything that the handler causes
// derive from it.
func idempotencyKey(f store.Firing) string { return fmt.Sprintf("effect:%s:%d", f.EffectID, f.Due) }
