package engine

import (
	"context"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/tool/code"
)

// effectCode implements effects.Runner.
type effectCode struct{ engine *Engine }

// RunEffect runs the effect's code in an isolate of its own in the thread's sandbox.
func (c *effectCode) RunEffect(ctx context.Context, call effects.Call) error {
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
	_, err = x.host.Code.Invoke(withCausation(ctx, causation{depth: call.HookDepth}), call.Key, module, call.Args, timeout)
	e.fault("effect.handler.after")
	if err == nil {
		return x.saveOutside(ctx)
	}
	if errors.Is(context.Cause(ctx), errTerminal) {
		return &effects.FinalError{Text: "the thread was terminated"}
	}
	x.code.lines.Fail("effect/"+effect.ObjectName, code.Explain(err))
	var gone *sandbox.IsolateGoneError
	if errors.As(err, &gone) && gone.Status == sandbox.StatusTerminated && !pastWallTime(gone) {
		return errors.New(code.Explain(err)) // the sandbox was lost: retry, since delivery is at least once
	}
	var thrown *sandbox.Error
	if gone != nil || errors.As(err, &thrown) || errors.Is(err, errCodeTimeout) {
		return &effects.FinalError{Text: code.Explain(err)}
	}
	return err
}
