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

// A hook that is to be told of what has happened may find no sandbox to be called in: then it stays in the inbox, held
// until it is tried again (SPEC HOK-01). Those of one thread keep their order, so that the others wait behind it, while
// messages and runs go on without them. A run tells them when there is a sandbox after all, and never waits for one on
// their behalf again.

const (
	// maxHookRetry bounds the time from one try to the next, which doubles with each.
	maxHookRetry = 2 * time.Minute
	// hookRetryWait is how long a thread at rest waits for a sandbox when it is not the first time. A pod that was asked
	// for goes on starting.
	hookRetryWait = 5 * time.Second
)

// untoldError says that nothing of a hook has run, since there was nothing to run it in.
type untoldError struct{ text string }

func (e *untoldError) Error() string { return e.text }

// nothingRan tells whether a call of code came to nothing before any of it had run.
func nothingRan(err error) bool {
	if gone := (*sandbox.IsolateGoneError)(nil); errors.As(err, &gone) {
		return !gone.Started && gone.Status == sandbox.StatusTerminated
	}
	// A sandbox that is busy has refused the isolate; what its code is refused later, the code is told.
	return errors.Is(err, errNoSandbox) || errors.Is(err, sandbox.ErrBusy)
}

// areHeld tells whether all hooks that wait are held, and it is not yet time for the first.
func (e *Engine) areHeld(hooks []store.InboxItem) bool {
	for _, item := range hooks {
		if item.HeldUntil == 0 {
			return false
		}
	}
	return hooks[0].HeldUntil > e.now()
}

// isWork tells whether any of what waits in an inbox can be taken now.
func (e *Engine) isWork(items []store.InboxItem) bool {
	for _, item := range items {
		if item.HeldUntil <= e.now() {
			return true
		}
	}
	return false
}

// hold gives the ops by which hooks that could not be told stay where they are, for the reason why, and what they are
// then. Each has now waited through one try more; those that have through too many are given up. Nor can those stay that
// have no place in the inbox.
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

// untold is for the log: that a hook is not told any more.
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

// keepHeld holds hooks until the first of them is tried again, and notes that in them.
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

// holdBehind holds the hooks that have come to be due since the first was held.
func (e *Engine) holdBehind(ctx context.Context, t *store.Thread, fence *store.Fence, hooks []store.InboxItem) error {
	var ops []store.Op
	for _, item := range hooks[1:] {
		if item.HeldUntil == 0 {
			ops = append(ops, &store.Hold{Seq: item.Seq, Until: hooks[0].HeldUntil, Tries: item.Tries})
		}
	}
	return e.store.Apply(ctx, t.ID, fence, ops...)
}

// expectHeld has those looked at in time that ops hold.
func (e *Engine) expectHeld(ops []store.Op) {
	for _, op := range ops {
		if hold, ok := op.(*store.Hold); ok {
			e.timers.Expect(hold.Until)
		}
	}
}

// reach opens an isolate for hooks that were held. It waits for a short time only, and not at all once something else
// comes for the thread; early tells that it was so.
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

// whenDirty has something done when the thread's inbox may have changed, or has already; until over is called.
func (a *activeThread) whenDirty(do func()) (over func()) {
	a.onDirty.Store(&do)
	if a.dirty.Load() {
		do()
	}
	return func() { a.onDirty.Store(nil) }
}

// poke notes that the inbox may have changed.
func (a *activeThread) markDirty() {
	a.dirty.Store(true)
	if do := a.onDirty.Load(); do != nil {
		(*do)()
	}
}

// passOver tells whether hooks that it is time to try again let a run go first, which need not wait for a sandbox as they
// do: once for whatever it is that the run has to do, so that what stays in the inbox keeps no hook from its turn.
func (e *Engine) passOver(active *activeThread, hooks []store.InboxItem, t *store.Thread, last *store.Run, rest []store.InboxItem) bool {
	if hooks[0].HeldUntil == 0 {
		return false
	}
	if under := last != nil && !last.Status.Ended(); under && len(rest) == 0 && !e.isDue(last) || !under && (t.Parked || !startsRun(rest)) {
		return false
	}
	newest := int64(1) // for a time that has come
	if len(rest) > 0 {
		newest = rest[len(rest)-1].Seq
	}
	if newest <= active.passedOver {
		return false
	}
	active.passedOver = newest
	return true
}

// leavesOverdue tells whether a run leaves hooks behind that it is time to try again. Nobody looks for those while it is
// under way; those whose time has yet to come are looked at then.
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

// canTell tells whether any of the hooks that are due can be told now: those that were held are not waited for.
func (r *run) canTell() bool {
	due := r.hooks.due
	return len(due) > 0 && (due[0].HeldUntil == 0 || !r.agent.HasHooks() || r.exec != nil && r.exec.code.opened())
}
