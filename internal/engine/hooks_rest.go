package engine

import (
	"context"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Hooks that run outside of a run have their own execution, with its own state.context.

// MessageHooks returns the hooks that apply when a message is written from outside of a run (HOK-01). It returns nil
// when the agent of the thread has no such hooks or cannot be resolved.
func (e *Engine) MessageHooks(ctx context.Context, t *store.Thread) thread.MessageHooks {
	if t.TerminatedAt != 0 || t.RetainedAt != 0 {
		return nil
	}
	hooks, err := e.opts.Definitions.Hooks(ctx, t.Namespace, t.Agent)
	if err != nil {
		e.log.Info("a message is written without hooks, since they cannot be resolved", "thread", t.ID, "agent", t.Agent, "error", err.Error())
		return nil
	}
	if !hasMessageHooks(hooks) {
		return nil
	}
	// Only a run knows whose turn it is. An external writer always talks to side a.
	side := &definition.Side{Name: definition.SideA, Hooks: hooks}
	return &messageHooks{engine: e, side: func() *definition.Side { return side }, within: func(ctx context.Context, do func(*execution) ([]store.Op, error)) ([]store.Op, error) {
		ctx, leave := e.attach(ctx, t.ID)
		defer leave()
		x, err := e.external(ctx, t.ID)
		if err != nil {
			return nil, err
		}
		defer x.close()
		ops, err := do(x)
		if err != nil {
			return nil, err
		}
		return ops, x.saveOutside(ctx)
	}}
}

// createdKey is the key that makes after_thread_created run once in the life of a thread.
const createdKey = "thread"

// ThreadCreated returns the first inbox items of a new thread: the call of after_thread_created. It returns the item
// also when the agent cannot be resolved yet. Whether the agent has that hook is then decided once the agent can be
// resolved.
func (e *Engine) ThreadCreated(ctx context.Context, namespace, agent string) []store.InboxItem {
	hooks, err := e.opts.Definitions.Hooks(ctx, namespace, agent)
	if err == nil && hooks[skeinv1.HookAfterThreadCreated] == nil {
		return nil
	}
	return []store.InboxItem{hookItem(createdKey, store.HookCall{Hook: string(skeinv1.HookAfterThreadCreated), Outside: true})}
}

// splitHooks splits inbox items into calls of hooks and the rest.
func splitHooks(items []store.InboxItem) (hooks, rest []store.InboxItem) {
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

// tellAtRest calls pending hooks of a thread that has no run under way. The caller holds the lease of the thread.
// Each item leaves the inbox once its hook was called. Without a sandbox the items are held.
func (e *Engine) tellAtRest(ctx context.Context, t *store.Thread, fence *store.Fence, active *activeThread, items []store.InboxItem) error {
	if items[0].HeldUntil > e.now() {
		return e.holdBehind(ctx, t, fence, items)
	}
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return fmt.Errorf("agent %s of thread %s: %w", t.Agent, t.ID, err)
	}
	var x *execution
	defer func() {
		if x != nil {
			x.close()
		}
	}()
	for i, item := range items {
		ops := []store.Op{&store.Dequeue{Seqs: []int64{item.Seq}}}
		if agent.HasHooks() {
			if x == nil {
				if x, err = e.hookExecution(ctx, t, fence, agent); err != nil {
					return err
				}
			}
			if item.HeldUntil != 0 && !x.code.opened() {
				if early, err := x.reach(ctx, active); ctx.Err() != nil {
					return err
				} else if early {
					return e.holdAtRest(ctx, t, fence, e.keepHeld(items[i:]))
				} else if err != nil {
					held, _ := x.hold(items[i:], explainHook(err))
					return e.holdAtRest(ctx, t, fence, held)
				}
			}
			failed, err := x.tell(ctx, fmt.Sprint(item.Seq), item.Payload)
			if untold := (*untoldError)(nil); errors.As(err, &untold) {
				held, _ := x.hold(items[i:], untold.text)
				return e.holdAtRest(ctx, t, fence, held)
			}
			if err != nil {
				return err
			}
			if failed != nil {
				ops = append(ops, failed)
			}
			if err := x.saveOutside(ctx); err != nil {
				return err
			}
		}
		e.fault("tell.before")
		if err := e.store.Apply(ctx, t.ID, fence, ops...); err != nil {
			return err
		}
		e.fault("tell.after")
	}
	return nil
}

// holdAtRest writes ops that hold hooks which could not be called.
func (e *Engine) holdAtRest(ctx context.Context, t *store.Thread, fence *store.Fence, ops []store.Op) error {
	e.fault("tell.before")
	if err := e.store.Apply(ctx, t.ID, fence, ops...); err != nil {
		return err
	}
	e.fault("tell.after")
	e.expectHeld(ops)
	return nil
}

// hookExecution returns an execution that serves hooks only.
func (e *Engine) hookExecution(ctx context.Context, t *store.Thread, fence *store.Fence, agent *definition.Agent) (*execution, error) {
	var unreadable *thread.EnvUnreadableError
	if _, err := e.threads.LoadEnv(ctx, t); err != nil && !errors.As(err, &unreadable) {
		return nil, err
	}
	st, err := e.threads.Open(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return e.newExecution(ctx, t, st.WithFence(fence), agent, ""), nil
}
