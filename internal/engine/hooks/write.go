package hooks

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/causation"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// beforeCreate calls before_create_message with a message that is about to be stored, which the hook may change. The
// returned operations belong into the transaction that stores the message.
func (c *Caller) beforeCreate(ctx context.Context, h *definition.Hook, m *store.Message) ([]store.Op, error) {
	about := Subject{cause: m.ID, messageID: m.ID}
	return c.change(ctx, h, about, func(v any) error {
		changed := *m
		if err := changeMessage(&changed, v); err != nil {
			return err
		}
		if err := c.x.Host.Threads.CheckMessage(&changed); err != nil {
			return err
		}
		*m = changed
		return nil
	}, m)
}

// change calls a hook that may return other data, and passes the data to take. The returned operations record a failure in
// the log: of the hook, of the data that it returned, or that the hook is not called because the chain of hooks is too
// long.
func (c *Caller) change(ctx context.Context, h *definition.Hook, about Subject, take func(v any) error, args ...any) ([]store.Op, error) {
	if limit := c.service.Depth; causation.FromContext(ctx).Nested >= limit {
		return []store.Op{failureEntry(h, c.x.Host.RunID, about, causation.TooDeep(limit))}, nil
	}
	v, failed, err := c.callHook(ctx, h, about, args...)
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return []store.Op{failed}, nil
	case v == nil:
		return nil, nil
	}
	if err := take(v); err != nil {
		return []store.Op{c.failedHook(h, about, "what the hook returned cannot be used: "+err.Error())}, nil
	}
	return nil, nil
}

// beforeUpdate calls before_update_message with the changes that are about to be made to a message. The hook may change
// them.
func (c *Caller) beforeUpdate(ctx context.Context, h *definition.Hook, id string, u *thread.MessageUpdate) ([]store.Op, error) {
	about := Subject{cause: id + ":" + uuid.NewString(), messageID: id}
	return c.change(ctx, h, about, func(v any) error {
		changed := *u
		if err := changeUpdate(&changed, v); err != nil {
			return err
		}
		if err := c.x.Host.Threads.CheckUpdate(changed); err != nil {
			return err
		}
		*u = changed
		return nil
	}, id, updateForHook(u))
}

// MessageHooksIn returns the hooks for messages that code of an execution writes, or nil if its agent has none for messages.
func (s *Service) MessageHooksIn(x *codeexec.Execution) thread.MessageHooks {
	if x.Agent == nil || !slices.ContainsFunc(x.Agent.Sides(), func(s *definition.Side) bool { return hasMessageHooks(s.Hooks) }) {
		return nil
	}
	return &messageHooks{
		service: s, side: x.Side, runID: x.Host.RunID,
		within: func(ctx context.Context, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error) {
			return do(x)
		},
	}
}

func hasMessageHooks(hooks map[skeinv1.HookName]*definition.Hook) bool {
	for _, name := range []skeinv1.HookName{
		skeinv1.HookBeforeCreateMessage, skeinv1.HookAfterCreateMessage, skeinv1.HookBeforeUpdateMessage, skeinv1.HookAfterUpdateMessage,
	} {
		if hooks[name] != nil {
			return true
		}
	}
	return false
}

// messageHooks implements thread.MessageHooks.
type messageHooks struct {
	service *Service
	side    func() *definition.Side // the side whose hooks are called
	runID   string
	// within calls do with an execution for the code of a hook.
	within func(ctx context.Context, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error)
}

// Creating implements thread.MessageHooks.
func (w *messageHooks) Creating(ctx context.Context, m *store.Message) (ops []store.Op, err error) {
	side := w.side()
	if h := side.Hooks[skeinv1.HookBeforeCreateMessage]; h != nil {
		ops, err = w.within(ctx, func(x *codeexec.Execution) ([]store.Op, error) { return w.service.callerFor(x).beforeCreate(ctx, h, m) })
		if ops, err = w.recordFailure(ctx, h, Subject{messageID: m.ID}, ops, err); err != nil {
			return nil, err
		}
	}
	return append(ops, w.service.Queue(ctx, side, w.runID, m.ID, store.HookCall{
		Hook: string(skeinv1.HookAfterCreateMessage), MessageID: m.ID,
	})...), nil
}

// Updating implements thread.MessageHooks.
func (w *messageHooks) Updating(ctx context.Context, id string, u *thread.MessageUpdate) (ops []store.Op, err error) {
	side := w.side()
	if h := side.Hooks[skeinv1.HookBeforeUpdateMessage]; h != nil {
		ops, err = w.within(ctx, func(x *codeexec.Execution) ([]store.Op, error) {
			return w.service.callerFor(x).beforeUpdate(ctx, h, id, u)
		})
		if ops, err = w.recordFailure(ctx, h, Subject{messageID: id}, ops, err); err != nil {
			return nil, err
		}
	}
	return append(ops, w.service.Queue(ctx, side, w.runID, "", store.HookCall{
		Hook: string(skeinv1.HookAfterUpdateMessage), MessageID: id,
	})...), nil
}

// recordFailure turns an error that prevented the call of a hook into a recorded failure of the hook, so that the message is
// written anyway. It returns errors of the store, and the end of ctx, as they are.
func (w *messageHooks) recordFailure(ctx context.Context, h *definition.Hook, about Subject, ops []store.Op, err error) ([]store.Op, error) {
	switch {
	case err == nil:
		return ops, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrTerminated), errors.Is(err, store.ErrRetained):
		return nil, err
	}
	return []store.Op{failureEntry(h, w.runID, about, "the hook could not be called: "+err.Error())}, nil
}

// Queueing implements thread.MessageHooks. It marks a message that a hook queues with the length of the chain of hooks, so
// that hooks that cause each other from run to run come to an end.
func (w *messageHooks) Queueing(ctx context.Context, m *store.Message) {
	depth := causation.FromContext(ctx).Depth
	if _, claims := m.Metadata[runlog.MetadataHookDepth]; !claims && depth == 0 {
		return
	}
	metadata := make(map[string]any, len(m.Metadata)+1)
	for k, v := range m.Metadata {
		metadata[k] = v
	}
	delete(metadata, runlog.MetadataHookDepth)
	if depth > 0 {
		metadata[runlog.MetadataHookDepth] = depth
	}
	m.Metadata = metadata
}
