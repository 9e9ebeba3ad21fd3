package engine

import (
	"context"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// CheckMessageRoom returns a *store.NamespaceQuotaError when a namespace takes no more messages from outside.
func (e *Engine) CheckMessageRoom(ctx context.Context, namespace string) error {
	return e.quotas.CheckMessageRoom(ctx, namespace)
}

// Queue queues a message on a thread that may have a run under way. policy says what then happens (RUN-09). When
// policy is empty, the policy of the thread applies, else that of its agent, else enqueue. It returns the errors of
// State.Queue, and store.ErrRunning under the policy reject.
func (e *Engine) Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, policy skeinv1.RunPolicy) (*store.Message, error) {
	return e.stops.Queue(ctx, st, t, n, policy)
}

// Stop ends the run of a thread at a user's request: a run under way on this or another replica, or a waiting one.
// The run ends as stopped (RUN-04). Messages that wait in the inbox stay there until a user sends another message or
// calls Continue (MSG-08). Both facts are on disk when Stop returns, so a message sent afterwards starts a run.
// Without a run Stop does nothing.
func (e *Engine) Stop(ctx context.Context, threadID, reason string) error {
	return e.stops.Stop(ctx, threadID, reason)
}

// CancelRun ends one run of a thread, under way or parked, and nothing else: the thread then continues with what
// waits in its inbox (RUN-10). A run that has ended stays as it is. It returns store.ErrNotFound when the thread has
// no such run.
func (e *Engine) CancelRun(ctx context.Context, threadID, runID, reason string) error {
	return e.stops.CancelRun(ctx, threadID, runID, reason)
}

// Stopping reports whether the run of a thread that is under way on this replica is being ended.
func (e *Engine) Stopping(threadID string) bool { return e.active.IsEnding(threadID) }

// Destroy clears the conversation (THR-06), and ends a run that is under way. A parent that waits for the thread is told.
func (e *Engine) Destroy(ctx context.Context, threadID string) error {
	return e.stops.Destroy(ctx, threadID)
}

// Abort drops the run of a thread at once and writes nothing more, because the thread is about to be purged. It does
// not wait for the run.
func (e *Engine) Abort(_ context.Context, threadID, reason string) { e.stops.Abort(threadID, reason) }

// Terminate terminates a thread and keeps its data (THR-05), and does the same with every descendant (SUB-08). A repeat is not
// an error, and reaches descendants that were missed. reason is one of api/v1alpha1/conditions.go.
func (e *Engine) Terminate(ctx context.Context, threadID, reason string) error {
	return e.stops.Terminate(ctx, threadID, reason)
}

// OpenReplies returns the calls of a parent that wait for a child, as stop.Service.OpenReplies does.
func (e *Engine) OpenReplies(ctx context.Context, child *store.Thread) ([]string, error) {
	return e.stops.OpenReplies(ctx, child)
}

// AnswerForLost answers the calls of a waiting run that wait for children which were deleted before their threads were
// stored.
func (e *Engine) AnswerForLost(ctx context.Context, t *store.Thread, run *store.Run) error {
	return e.stops.AnswerForLost(ctx, t, run)
}

// runsPort implements stop.Runs. The service of runs needs that of stops, so it is made after it.
type runsPort struct{ engine *Engine }

// End implements stop.Runs.
func (p runsPort) End(ctx context.Context, t *store.Thread, fence *store.Fence, active *activethreads.Active, last *store.Run, how *cancelcause.Stop) error {
	return p.engine.runs.End(ctx, t, fence, active, last, how)
}

// LetGo implements stop.Runs.
func (p runsPort) LetGo(ctx context.Context, threadID string, active *activethreads.Active) {
	p.engine.dispatch.LetGo(ctx, threadID, active)
}

// Wake implements stop.Runs.
func (p runsPort) Wake(threadID string) { p.engine.Wake(threadID) }
