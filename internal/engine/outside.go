package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// InvokeTool calls a tool of the thread's agent outside of a run and gives its result (SPEC TOL-01). An
// unknown thread is store.ErrNotFound, a terminated one store.ErrTerminated, an agent that is not ready a
// *NotReadyError.
func (e *Engine) InvokeTool(ctx context.Context, threadID, name string, args json.RawMessage) (tool.Result, error) {
	ctx, leave := e.attach(ctx, threadID)
	defer leave()
	x, err := e.outside(ctx, threadID)
	if err != nil {
		return tool.Result{}, err
	}
	defer x.close()
	return x.host.Tools.InvokeTool(ctx, "call_"+uuid.NewString(), name, args)
}

// RunCode runs code in the thread's sandbox in an isolate of its own (SPEC COD-01). Errors are those of
// InvokeTool, and that no sandbox could be had; all that went wrong within one is in the Result.
func (e *Engine) RunCode(ctx context.Context, threadID string, req sandbox.CodeRequest) (sandbox.Result, error) {
	ctx, leave := e.attach(ctx, threadID)
	defer leave()
	x, err := e.outside(ctx, threadID)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer x.close()
	return x.host.Code.RunCode(ctx, req)
}

// outside makes an execution that is no run: its writes are not fenced.
func (e *Engine) outside(ctx context.Context, threadID string) (*execution, error) {
	t, err := e.store.Thread(ctx, threadID)
	if err != nil {
		return nil, err
	}
	if t.TerminatedAt != 0 {
		return nil, fmt.Errorf("%w: start a new thread to go on", store.ErrTerminated)
	}
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return nil, err
	}
	st, err := e.threads.Open(ctx, threadID)
	if err != nil {
		return nil, err
	}
	return e.newExecution(ctx, t, st, agent, ""), nil
}
