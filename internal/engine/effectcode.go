package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/engine/causation"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/ending"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/code"
)

// effectCode implements effects.Runner: it carries out firings with the engine's means.
type effectCode struct{ engine *Engine }

// RunEffect runs the effect's code in an isolate of its own in the thread's sandbox.
func (c *effectCode) RunEffect(ctx context.Context, call effects.Call) error {
	if call.Thread == nil {
		return c.runWithoutThread(ctx, call)
	}
	e, t, effect := c.engine, call.Thread, call.Effect
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
	ctx, leave := e.held.Attach(ctx, t.ID)
	defer leave()
	x := e.newExecution(ctx, t, st, agent, "")
	defer x.Close()
	module, timeout := "effects/"+effect.ObjectName, time.Duration(0)
	if effect.Spec.Timeout != nil {
		timeout = effect.Spec.Timeout.Duration
	}
	if call.Target.Timeout > 0 {
		timeout = call.Target.Timeout
	}
	x.Code.Add(module, effect.Module, timeout)
	e.fault("effect.handler.before")
	_, err = x.Host.Code.Invoke(causation.With(ctx, causation.Chain{Depth: call.HookDepth}), call.Key, module, call.Args, timeout)
	e.fault("effect.handler.after")
	if err == nil {
		return x.SaveOutside(ctx)
	}
	if errors.Is(context.Cause(ctx), ending.ErrTerminal) {
		return &effects.FinalError{Text: "the thread was terminated"}
	}
	if errors.Is(err, codeexec.ErrNoSandbox) {
		return &effects.WaitError{Err: err}
	}
	x.Code.Lines.Fail("effect/"+effect.ObjectName, code.Explain(err))
	return handlerFailed(err)
}

// handlerFailed returns the outcome of a handler that did not succeed.
func handlerFailed(err error) error {
	var gone *sandbox.IsolateGoneError
	if errors.As(err, &gone) && gone.Status == sandbox.StatusTerminated && !codeexec.PastWallTime(gone) {
		return errors.New(code.Explain(err)) // the sandbox was lost: retry, since delivery is at least once
	}
	var thrown *sandbox.Error
	if gone != nil || errors.As(err, &thrown) || errors.Is(err, codeexec.ErrTimeout) {
		return &effects.HandlerError{Text: code.Explain(err)}
	}
	return err
}

// QueueMessage queues the message of a firing under the firing's key, so that a repeat has no effect.
func (c *effectCode) QueueMessage(ctx context.Context, call effects.Call) error {
	st, err := c.engine.threads.Open(ctx, call.Thread.ID)
	if err != nil {
		return err
	}
	m := call.Target.Message
	_, err = c.engine.Queue(ctx, st, call.Thread, thread.NewMessage{IdempotencyKey: call.Key, Content: &m.Content, Silent: m.Silent}, "")
	if errors.Is(err, store.ErrQueueFull) {
		return &effects.WaitError{Err: err}
	}
	return final(err)
}

// QueueTool queues a call of a tool on the firing's thread.
func (c *effectCode) QueueTool(ctx context.Context, call effects.Call) error {
	e, args := c.engine, call.Firing.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	payload, err := json.Marshal(store.QueuedTool{Name: call.Target.Queue.Name, Arguments: args, HookDepth: call.HookDepth})
	if err != nil {
		return err
	}
	return final(e.store.Apply(ctx, call.Thread.ID, nil, &store.Enqueue{Item: store.InboxItem{Key: "tool:" + call.Key, Kind: store.InboxTool, Payload: payload}}))
}

// final makes an error final that no further attempt would mend.
func final(err error) error {
	var invalid *thread.InvalidError
	if errors.As(err, &invalid) || errors.Is(err, store.ErrTerminated) || errors.Is(err, store.ErrRetained) {
		return &effects.HandlerError{Text: err.Error()}
	}
	return err
}
