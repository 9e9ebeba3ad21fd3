package engine

import "context"

// CallState serves one call of `state` as if code of the thread, outside of a run, had made it: for calls that no code
// of ours makes.
func (e *Engine) CallState(ctx context.Context, threadID, method string, args ...any) (any, error) {
	x, err := e.executions.External(ctx, threadID)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	return x.Code.Serve(ctx, "test", method, args)
}
