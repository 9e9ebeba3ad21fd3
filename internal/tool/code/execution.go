package code

import (
	"context"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/tool"
)

// run returns the run that the code is part of, or an error outside of a run.
func (c *stateCall) run() (tool.Execution, error) {
	if c.host.Execution == nil {
		return nil, &sandbox.Error{Name: "NotSupportedError", Message: "state.execution is null: this code runs outside of a run of the thread"}
	}
	return c.host.Execution, nil
}

// stopExecution implements state.execution.stop() (RUN-03).
func stopExecution(_ context.Context, c *stateCall) (any, error) {
	x, err := c.run()
	if err != nil {
		return nil, err
	}
	x.Stop()
	return nil, nil
}

// forceTurn implements state.execution.forceTurn(side) (RUN-03).
func forceTurn(_ context.Context, c *stateCall) (any, error) {
	x, err := c.run()
	if err != nil {
		return nil, err
	}
	side, _ := c.arg(0).(string)
	return nil, x.ForceTurn(side)
}

// now returns the present properties of `state`. An isolate requests them when they may have changed.
func now(ctx context.Context, c *stateCall) (any, error) {
	static, err := c.Static(ctx)
	if err != nil {
		return nil, err
	}
	delete(static, scopesProperty)
	delete(static, methodsProperty)
	delete(static, contextProperty)
	return static, nil
}
