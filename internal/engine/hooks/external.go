package hooks

import (
	"context"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Hooks that run outside of a run have their own execution, with its own state.context.

// MessageHooks returns the hooks that apply when a message is written from outside of a run (HOK-01). It returns nil
// when the agent of the thread has no such hooks or cannot be resolved.
func (s *Service) MessageHooks(ctx context.Context, t *store.Thread) thread.MessageHooks {
	if t.TerminatedAt != 0 || t.RetainedAt != 0 || t.Deleting {
		return nil
	}
	hooks, err := s.Definitions.Hooks(ctx, t.Namespace, t.Agent)
	if err != nil {
		s.Log.Info("a message is written without hooks, since they cannot be resolved", "thread", t.ID, "agent", t.Agent, "error", err.Error())
		return nil
	}
	if !hasMessageHooks(hooks) {
		return nil
	}
	// Only a run knows whose turn it is. An external writer always talks to side a.
	side := &definition.Side{Name: definition.SideA, Hooks: hooks}
	return &messageHooks{service: s, side: func() *definition.Side { return side }, within: func(ctx context.Context, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error) {
		return s.Executions.WithExternal(ctx, t, do)
	}}
}

// createdKey is the key that makes after_thread_created run once in the life of a thread.
const createdKey = "thread"

// ThreadCreated returns the first inbox items of a new thread: the call of after_thread_created. It returns the item
// also when the agent cannot be resolved yet. Whether the agent has that hook is then decided once the agent can be
// resolved.
func (s *Service) ThreadCreated(ctx context.Context, namespace, agent string) []store.InboxItem {
	hooks, err := s.Definitions.Hooks(ctx, namespace, agent)
	if err == nil && hooks[skeinv1.HookAfterThreadCreated] == nil {
		return nil
	}
	return []store.InboxItem{hookItem(createdKey, store.HookCall{Hook: string(skeinv1.HookAfterThreadCreated), NoSide: true})}
}

// Split splits inbox items into calls of hooks and the rest.
func Split(items []store.InboxItem) (hooks, rest []store.InboxItem) {
	for i, item := range items {
		if item.Kind == store.InboxHook {
			if hooks == nil {
				rest = append([]store.InboxItem(nil), items[:i]...)
			}
			hooks = append(hooks, item)
		} else if hooks != nil {
			rest = append(rest, item)
		}
	}
	if hooks == nil {
		return nil, items
	}
	return hooks, rest
}

// CallAtRest calls pending hooks of a thread that has no run under way. The caller holds the lease of the thread.
// Each item leaves the inbox once its hook was called. Without a sandbox the items are delayed. whenDirty has
// its argument called when the inbox of the thread may have changed.
func (s *Service) CallAtRest(ctx context.Context, t *store.Thread, fence *store.Fence, whenDirty func(do func()) (over func()), items []store.InboxItem) error {
	if items[0].DelayedUntil > s.Now() {
		return s.delayBehind(ctx, t, fence, items)
	}
	agent, err := s.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return fmt.Errorf("agent %s of thread %s: %w", t.Agent, t.ID, err)
	}
	var x *codeexec.Execution
	defer func() {
		if x != nil {
			x.Close()
		}
	}()
	for i, item := range items {
		ops := []store.Op{&store.Dequeue{Seqs: []int64{item.Seq}}}
		if agent.HasHooks() {
			if x == nil {
				if x, err = s.Executions.AtRest(ctx, t, fence, agent); err != nil {
					return err
				}
			}
			if item.DelayedUntil != 0 && !x.Code.HasIsolate() {
				if early, err := s.callerFor(x).reach(ctx, whenDirty); ctx.Err() != nil {
					return err
				} else if early {
					return s.delayAtRest(ctx, t, fence, s.keepDelayed(items[i:]))
				} else if err != nil {
					delayed, _ := s.callerFor(x).delay(items[i:], codeexec.Explain(err))
					return s.delayAtRest(ctx, t, fence, delayed)
				}
			}
			failed, err := s.callerFor(x).callQueued(ctx, fmt.Sprint(item.Seq), item.Payload)
			if notCalled := (*notCalledError)(nil); errors.As(err, &notCalled) {
				delayed, _ := s.callerFor(x).delay(items[i:], notCalled.text)
				return s.delayAtRest(ctx, t, fence, delayed)
			}
			if err != nil {
				return err
			}
			if failed != nil {
				ops = append(ops, failed)
			}
			if err := x.SaveExternal(ctx); err != nil {
				return err
			}
		}
		s.fault("hook.rest.before")
		if err := s.Store.Apply(ctx, t.ID, fence, ops...); err != nil {
			return err
		}
		s.fault("hook.rest.after")
	}
	return nil
}

// delayAtRest writes ops that delay hooks which could not be called.
func (s *Service) delayAtRest(ctx context.Context, t *store.Thread, fence *store.Fence, ops []store.Op) error {
	s.fault("hook.rest.before")
	if err := s.Store.Apply(ctx, t.ID, fence, ops...); err != nil {
		return err
	}
	s.fault("hook.rest.after")
	s.expectDelayed(ops)
	return nil
}
