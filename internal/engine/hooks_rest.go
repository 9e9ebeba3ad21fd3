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

// Hooks outside of a run have an execution of their own, with a state.context of its own.

// MessageHooks gives the hooks that a write of a message from outside goes through (SPEC HOK-01); nil when the
// thread's agent has none that it concerns, or cannot be resolved.
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
	// Whose turn it may be is the run's affair: whoever writes from outside talks with side a.
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

// createdKey makes after_thread_created happen once in the life of a thread.
const createdKey = "thread"

// ThreadCreated gives what a new thread's inbox begins with: that after_thread_created is to be told. Where it
// cannot be known yet whether the agent has that hook, it is found out when the agent can be resolved.
func (e *Engine) ThreadCreated(ctx context.Context, namespace, agent string) []store.InboxItem {
	hooks, err := e.opts.Definitions.Hooks(ctx, namespace, agent)
	if err == nil && hooks[skeinv1.HookAfterThreadCreated] == nil {
		return nil
	}
	return []store.InboxItem{hookItem(createdKey, store.HookCall{Hook: string(skeinv1.HookAfterThreadCreated), Outside: true})}
}

// splitHooks takes the hooks that are to be told out of what waits in an inbox.
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

// tellAtRest tells hooks of a thread that no run is under way for, under its lease. Each leaves the inbox once it has been
// told; where there is no sandbox they are held.
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

// holdAtRest writes how hooks are held that could not be told.
func (e *Engine) holdAtRest(ctx context.Context, t *store.Thread, fence *store.Fence, ops []store.Op) error {
	e.fault("tell.before")
	if err := e.store.Apply(ctx, t.ID, fence, ops...); err != nil {
		return err
	}
	e.fault("tell.after")
	e.expectHeld(ops)
	return nil
}

// hookExecution is an execution for hooks alone.
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
