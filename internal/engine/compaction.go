package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/compaction"
)

// Compact asks for a summary of older messages of a thread, for the model of a side ("" for side a), and does not wait for
// it. It returns the id of the request, which is in the event that says what came of it. A repeat under the same key is
// the same request. Errors:
//   - store.ErrNotFound for an unknown thread
//   - store.ErrTerminated for a terminated thread
//   - a *NotReadyError for an agent that is not ready
//   - a *thread.InvalidError for a side that reads no summaries
func (e *Engine) Compact(ctx context.Context, threadID, key, side string) (request string, err error) {
	t, st, err := e.executions.LivingThread(ctx, threadID)
	if err != nil {
		return "", err
	}
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return "", err
	}
	return compaction.Request(ctx, agent, st, threadID, key, side)
}
