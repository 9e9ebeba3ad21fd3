// Package effectcode carries out firings of effects: it calls their code, queues their messages and tool calls, and calls their tools.
package effectcode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/causation"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/executions"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/code"
)

// Options of a Runner.
type Options struct {
	Threads     *thread.Service
	Store       store.Store
	Definitions ports.Definitions
	Env         *codeexec.Environment
	Executions  *executions.Service
	Active      *activethreads.Threads
	Clock       clock.WithTickerAndDelayedExecution
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// Queue queues a message on a thread.
	Queue func(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, policy skeinv1.RunPolicy) (*store.Message, error)
	// Fault marks a point around an outside call, for crash tests.
	Fault func(point string)
}

// Runner implements effects.Runner: it carries out firings of effects.
type Runner struct{ opts Options }

// New returns a runner.
func New(o Options) *Runner { return &Runner{opts: o} }

// fault marks a point around an outside call, for crash tests.
func (c *Runner) fault(point string) { c.opts.Fault(point) }

// RunEffect runs the effect's code in an isolate of its own in the thread's sandbox.
func (c *Runner) RunEffect(ctx context.Context, call effects.Call) error {
	if call.Thread == nil {
		return c.runWithoutThread(ctx, call)
	}
	t, effect := call.Thread, call.Effect
	st, err := c.opts.Threads.Open(ctx, t.ID)
	if err != nil {
		return err
	}
	if _, err := c.opts.Threads.LoadEnv(ctx, t); err != nil {
		return err
	}
	// Without an agent the sandbox comes from the default pool, and there are no tools to call.
	agent, err := c.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if err != nil && !errors.As(err, &notReady) {
		return err
	}
	ctx, leave := c.opts.Active.Attach(tellWaits(ctx, call), t.ID)
	defer leave()
	x := c.opts.Executions.New(ctx, t, st, agent, "")
	defer x.Close()
	x.Code.Lines.SetFiring(call.Firing)
	module, timeout := "effects/"+effect.ObjectName, time.Duration(0)
	if effect.Spec.Timeout != nil {
		timeout = effect.Spec.Timeout.Duration
	}
	if call.Target.Timeout > 0 {
		timeout = call.Target.Timeout
	}
	x.Code.Add(module, effect.Module, timeout)
	c.fault("effect.handler.before")
	_, err = x.Host.Code.Invoke(causation.NewContext(ctx, causation.Chain{Depth: call.HookDepth}), call.Key, module, call.Args, timeout)
	c.fault("effect.handler.after")
	if err == nil {
		return x.SaveExternal(ctx)
	}
	if errors.Is(context.Cause(ctx), cancelcause.ErrTerminal) {
		return &effects.CanceledError{Text: "the thread was terminated"}
	}
	if errors.Is(err, codeexec.ErrNoSandbox) {
		return &effects.WaitError{Err: err}
	}
	x.Code.Lines.Fail("effect/"+effect.ObjectName, code.Explain(err))
	return handlerOutcome(x.Code, &call.Target, err)
}

// tellWaits returns a context for requests for a sandbox. The firing says what such a request waits for, with the text of one that failed.
func tellWaits(ctx context.Context, call effects.Call) context.Context {
	return ports.WithWaits(ctx, func(why error) {
		text := ""
		if why != nil {
			text = codeexec.NoSandbox(why).Error()
		}
		call.Waits(text)
	})
}

// handlerOutcome returns the outcome of a handler that did not succeed. It wraps store.ErrUnavailable when the store was not available
// for a call that the handler made: it is then no failure of the handler, whatever it threw.
func handlerOutcome(host interface{ Outage() bool }, target *effects.Target, err error) error {
	if host.Outage() {
		return fmt.Errorf("%w while the handler ran: %s", store.ErrUnavailable, code.Explain(err))
	}
	if target.Timeout > 0 && errors.Is(err, codeexec.ErrTimeout) {
		return &effects.HandlerError{Text: target.TimeoutText()}
	}
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
func (c *Runner) QueueMessage(ctx context.Context, call effects.Call) error {
	st, err := c.opts.Threads.Open(ctx, call.Thread.ID)
	if err != nil {
		return err
	}
	m := call.Target.Message
	_, err = c.opts.Queue(ctx, st, call.Thread, thread.NewMessage{IdempotencyKey: call.Key, Content: &m.Content, Silent: m.Silent}, "")
	return queueError(err)
}

// QueueTool queues a call of a tool on the firing's thread under the firing's key, so that a repeat has no effect. It waits for an agent that
// is not ready. An agent without such a tool is a mistake, which the firing's error says: the call is not queued.
func (c *Runner) QueueTool(ctx context.Context, call effects.Call) error {
	args := call.Firing.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	ctx, leave := c.opts.Active.Attach(tellWaits(ctx, call), call.Thread.ID)
	defer leave()
	x, err := c.opts.Executions.External(ctx, call.Thread.ID)
	if err != nil {
		return queueError(err) // a *definition.NotReadyError waits
	}
	defer x.Close()
	err = x.Host.Tools.QueueTool(causation.NewContext(ctx, causation.Chain{Depth: call.HookDepth}), call.Key, call.Target.Queue.Name, args)
	var unknown *definition.UnknownError
	if errors.As(err, &unknown) {
		if unknown.Unsure {
			return &effects.WaitError{Err: err}
		}
		return &effects.FinalError{Text: err.Error()}
	}
	if errors.Is(context.Cause(ctx), cancelcause.ErrTerminal) {
		return &effects.CanceledError{Text: "the thread was terminated"}
	}
	return queueError(err)
}

// queueError returns the outcome of a firing whose message or call was not queued. A full queue makes the firing wait, and so does a
// namespace that has no room for more messages. A thread that ended or lost its object cancels it. Invalid input is a failure of the
// handler. Any other error is tried again.
func queueError(err error) error {
	var invalid *thread.InvalidError
	var full *store.NamespaceQuotaError
	switch {
	case errors.Is(err, store.ErrQueueFull), errors.As(err, &full) && full.Resource == store.QuotaMessageBytes:
		return &effects.WaitError{Err: err}
	case errors.Is(err, store.ErrTerminated), errors.Is(err, store.ErrRetained):
		return &effects.CanceledError{Text: err.Error()}
	case errors.As(err, &invalid):
		return &effects.HandlerError{Text: err.Error()}
	}
	return err
}
