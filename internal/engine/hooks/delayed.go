package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// A hook that reacts to a past event may find no sandbox to run in. Its item then stays in the inbox, delayed until the
// next try (HOK-01). The hooks of one thread keep their order, so the others wait behind it, while messages and runs
// continue without them. A run calls delayed hooks when it has a sandbox anyway, and never waits for a sandbox on their
// behalf again.

const (
	// maxHookRetry bounds the time between two tries, which doubles with each try.
	maxHookRetry = 2 * time.Minute
	// RetryWait bounds how long a thread at rest waits for a sandbox when it is not the first try. A pod that was
	// requested keeps starting in the meantime.
	RetryWait = 5 * time.Second
)

// notCalledError reports that no code of a hook has run, because there was no sandbox to run it in.
type notCalledError struct{ text string }

func (e *notCalledError) Error() string { return e.text }

// AreDelayed reports whether all pending hooks are delayed and the first one is not due yet.
func (s *Service) AreDelayed(hooks []store.InboxItem) bool {
	for _, item := range hooks {
		if item.DelayedUntil == 0 {
			return false
		}
	}
	return hooks[0].DelayedUntil > s.Now()
}

// delay counts one more failed try, for the reason why, for hooks that could not be called. It returns the operations
// that delay them in the inbox, and the hooks that stay. A hook is given up when it has used up its tries
// (Limits.HookTries), or when it has no inbox item that could stay.
func (c *Caller) delay(hooks []store.InboxItem, why string) (ops []store.Op, left []store.InboxItem) {
	limit := c.service.Tries
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
		ops = append(ops, c.service.notCalledEntry(c.x.Agent, c.x.Host.Thread, c.x.Host.RunID, item, text)...)
	}
	return append(ops, c.service.keepDelayed(left)...), left
}

// notCalledEntry returns the log entry which says that a hook was given up without being called.
func (s *Service) notCalledEntry(agent *definition.Agent, t *store.Thread, runID string, item store.InboxItem, why string) []store.Op {
	var call store.HookCall
	if json.Unmarshal(item.Payload, &call) != nil {
		return nil
	}
	h := agent.HookOf(&call)
	if h == nil {
		return nil
	}
	about := Subject{messageID: call.MessageID}
	if call.Call != nil {
		about.toolCallID = call.Call.ID
	}
	return []store.Op{s.failedHook(t, runID, h, about, why)}
}

// keepDelayed returns the operations that delay hooks until the first of them is tried again, and updates the items
// accordingly.
func (s *Service) keepDelayed(hooks []store.InboxItem) (ops []store.Op) {
	if len(hooks) == 0 {
		return nil
	}
	wait := s.Retry
	for range hooks[0].Tries - 1 {
		if wait *= 2; wait >= maxHookRetry {
			wait = max(maxHookRetry, s.Retry)
			break
		}
	}
	until := s.Now() + wait.Microseconds()
	for i := range hooks {
		hooks[i].DelayedUntil = until
		ops = append(ops, &store.Delay{Seq: hooks[i].Seq, Until: until, Tries: hooks[i].Tries})
	}
	return ops
}

// delayBehind delays hooks that were queued after the first one was delayed.
func (s *Service) delayBehind(ctx context.Context, t *store.Thread, fence *store.Fence, hooks []store.InboxItem) error {
	var ops []store.Op
	for _, item := range hooks[1:] {
		if item.DelayedUntil == 0 {
			ops = append(ops, &store.Delay{Seq: item.Seq, Until: hooks[0].DelayedUntil, Tries: item.Tries})
		}
	}
	return s.Store.Apply(ctx, t.ID, fence, ops...)
}

// expectDelayed sets timers for the hooks that ops delay.
func (s *Service) expectDelayed(ops []store.Op) {
	for _, op := range ops {
		if delay, ok := op.(*store.Delay); ok {
			s.Expect(delay.Until)
		}
	}
}

// reach opens an isolate for delayed hooks. It waits for a short time only, and stops waiting once the inbox of the
// thread changes, for which whenDirty calls its argument. early reports that it stopped for that reason.
func (c *Caller) reach(ctx context.Context, whenDirty func(do func()) (over func())) (early bool, err error) {
	wait, cancel := context.WithTimeout(ctx, RetryWait)
	defer cancel()
	defer whenDirty(cancel)()
	if _, _, err = c.x.Code.Isolate(wait, false); err == nil {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return errors.Is(wait.Err(), context.Canceled), err
}
