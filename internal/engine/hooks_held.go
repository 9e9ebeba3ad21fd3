package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// A hook that reacts to a past event may find no sandbox to run in. Its item then stays in the inbox, held until the
// next try (HOK-01). The hooks of one thread keep their order, so the others wait behind it, while messages and runs
// continue without them. A run calls held hooks when it has a sandbox anyway, and never waits for a sandbox on their
// behalf again.

const (
	// maxHookRetry bounds the time between two tries, which doubles with each try.
	maxHookRetry = 2 * time.Minute
	// hookRetryWait bounds how long a thread at rest waits for a sandbox when it is not the first try. A pod that was
	// requested keeps starting in the meantime.
	hookRetryWait = 5 * time.Second
)

// untoldError reports that no code of a hook has run, because there was no sandbox to run it in.
type untoldError struct{ text string }

func (e *untoldError) Error() string { return e.text }

// nothingRan reports whether a call of code failed before any of the code had run.
func nothingRan(err error) bool {
	if gone := (*sandbox.IsolateGoneError)(nil); errors.As(err, &gone) {
		return !gone.Started && gone.Status == sandbox.StatusTerminated
	}
	// A busy sandbox refused the isolate. When a sandbox refuses something to code that already runs, the code gets
	// that error.
	return errors.Is(err, errNoSandbox) || errors.Is(err, sandbox.ErrBusy)
}

// areHeld reports whether all pending hooks are held and the first one is not due yet.
func (e *Engine) areHeld(hooks []store.InboxItem) bool {
	for _, item := range hooks {
		if item.HeldUntil == 0 {
			return false
		}
	}
	return hooks[0].HeldUntil > e.now()
}

// isWork reports whether any inbox item can be processed now.
func (e *Engine) isWork(items []store.InboxItem) bool {
	for _, item := range items {
		if item.HeldUntil <= e.now() {
			return true
		}
	}
	return false
}

// hold counts one more failed try, for the reason why, for hooks that could not be called. It returns the operations
// that hold them in the inbox, and the hooks that stay. A hook is given up when it has used up its tries
// (Limits.HookTries), or when it has no inbox item that could stay.
func (x *execution) hold(hooks []store.InboxItem, why string) (ops []store.Op, left []store.InboxItem) {
	limit := x.engine.opts.Limits.HookTries
	for _, item := range hooks {
		if item.Tries++; item.Seq != 0 && item.Tries < limit {
			left = append(left, item)
			continue
		}
		text := why
		if item.Seq != 0 {
			ops = append(ops, &store.Dequeue{Seqs: []int64{item.Seq}})
			text = fmt.Sprintf("gave up after %d tries: %s", item.Tries, why)
		}
		ops = append(ops, x.engine.untold(x.agent, x.host.Thread, x.host.RunID, item, text)...)
	}
	return append(ops, x.engine.keepHeld(left)...), left
}

// untold returns the log entry which says that a hook was given up without being called.
func (e *Engine) untold(agent *definition.Agent, t *store.Thread, runID string, item store.InboxItem, why string) []store.Op {
	var call store.HookCall
	if json.Unmarshal(item.Payload, &call) != nil {
		return nil
	}
	h := agent.HookOf(&call)
	if h == nil {
		return nil
	}
	about := hookSubject{messageID: call.MessageID}
	if call.Call != nil {
		about.toolCallID = call.Call.ID
	}
	return []store.Op{e.failedHook(t, runID, h, about, why)}
}

// keepHeld returns the operations that hold hooks until the first of them is tried again, and updates the items
// accordingly.
func (e *Engine) keepHeld(hooks []store.InboxItem) (ops []store.Op) {
	if len(hooks) == 0 {
		return nil
	}
	wait := e.opts.HookRetry
	for range hooks[0].Tries - 1 {
		if wait *= 2; wait >= maxHookRetry {
			wait = max(maxHookRetry, e.opts.HookRetry)
			break
		}
	}
	until := e.now() + wait.Microseconds()
	for i := range hooks {
		hooks[i].HeldUntil = until
		ops = append(ops, &store.Hold{Seq: hooks[i].Seq, Until: until, Tries: hooks[i].Tries})
	}
	return ops
}

// holdBehind holds hooks that were queued after the first one was held.
func (e *Engine) holdBehind(ctx context.Context, t *store.Thread, fence *store.Fence, hooks []store.InboxItem) error {
	var ops []store.Op
	for _, item := range hooks[1:] {
		if item.HeldUntil == 0 {
			ops = append(ops, &store.Hold{Seq: item.Seq, Until: hooks[0].HeldUntil, Tries: item.Tries})
		}
	}
	return e.store.Apply(ctx, t.ID, fence, ops...)
}

// expectHeld sets timers for the hooks that ops hold.
func (e *Engine) expectHeld(ops []store.Op) {
	for _, op := range ops {
		if hold, ok := op.(*store.Hold); ok {
			e.timers.Expect(hold.Until)
		}
	}
}

// reach opens an isolate for held hooks. It waits for a short time only, and stops waiting once the inbox of the
// thread changes. early reports that it stopped for that reason.
func (x *execution) reach(ctx context.Context, active *activeThread) (early bool, err error) {
	wait, cancel := context.WithTimeout(ctx, hookRetryWait)
	defer cancel()
	defer active.whenDirty(cancel)()
	if _, _, err = x.code.isolate(wait, false); err == nil {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return errors.Is(wait.Err(), context.Canceled), err
}

// whenDirty calls do when the thread's inbox may have changed, or already has, until over is called.
func (a *activeThread) whenDirty(do func()) (over func()) {
	a.onDirty.Store(&do)
	if a.dirty.Load() {
		do()
	}
	return func() { a.onDirty.Store(nil) }
}

// markDirty records that the inbox may have changed.
func (a *activeThread) markDirty() {
	a.dirty.Store(true)
	if do := a.onDirty.Load(); do != nil {
		(*do)()
	}
}

// passOver reports whether a waiting run precedes hook retries that are due. The run does not need to wait for a
// sandbox as they do. It precedes them once for each reason to run, so that items which stay in the inbox do not keep
// hooks from their turn.
func (e *Engine) passOver(active *activeThread, hooks []store.InboxItem, t *store.Thread, last *store.Run, rest []store.InboxItem) bool {
	if hooks[0].HeldUntil == 0 {
		return false
	}
	if under := last != nil && !last.Status.Ended(); under && len(rest) == 0 && !e.isDue(last) || !under && (t.Parked || !startsRun(rest)) {
		return false
	}
	newest := int64(1) // the run is due by its time, without an item
	if len(rest) > 0 {
		newest = rest[len(rest)-1].Seq
	}
	if newest <= active.passedOver {
		return false
	}
	active.passedOver = newest
	return true
}

// leavesOverdue reports whether a run that ends leaves hook retries behind that are due. Nobody looks for those while
// the run is under way. For hooks that are due later it sets a timer.
func (r *run) leavesOverdue() bool {
	due := r.hooks.due
	if len(due) == 0 || due[0].HeldUntil == 0 {
		return false
	}
	if due[0].HeldUntil <= r.engine.now() {
		return true
	}
	r.engine.timers.Expect(due[0].HeldUntil)
	return false
}

// canTell reports whether any pending hook can be called now. The run does not wait for a sandbox for hooks that were
// held.
func (r *run) canTell() bool {
	due := r.hooks.due
	return len(due) > 0 && (due[0].HeldUntil == 0 || !r.agent.HasHooks() || r.exec != nil && r.exec.code.opened())
}
