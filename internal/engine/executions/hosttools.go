package executions

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/engine/causation"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// definitionsOf implements reading the definitions of a namespace for tools.
type definitionsOf struct {
	service   *Service
	namespace string
}

// Definitions returns what tools may read of the definitions of a namespace.
func (s *Service) Definitions(namespace string) tool.Definitions {
	return &definitionsOf{service: s, namespace: namespace}
}

func (d *definitionsOf) Names(ctx context.Context, kind string) ([]string, error) {
	return d.service.opts.Definitions.Names(ctx, d.namespace, kind)
}

func (d *definitionsOf) Load(ctx context.Context, kind, name string) (json.RawMessage, error) {
	return d.service.opts.Definitions.Load(ctx, d.namespace, kind, name)
}

// effectsOf implements the operations on the effects of a thread for tools.
type effectsOf struct {
	service *Service
	thread  *store.Thread
}

func (f *effectsOf) Schedule(ctx context.Context, cause, name string, args json.RawMessage, delay time.Duration) (string, error) {
	depth := causation.DepthOfEffect(causation.FromContext(ctx), delay)
	if limit := f.service.opts.Limits.HookDepth; depth >= limit {
		return "", errors.New(causation.EffectTooDeep(limit))
	}
	f.service.fault("effect.schedule.before")
	id, err := f.service.opts.Effects.Schedule(ctx, f.thread, ports.EffectRequest{Cause: cause, Name: name, Args: args, Delay: delay, HookDepth: depth})
	f.service.fault("effect.schedule.after")
	return id, err
}

func (f *effectsOf) List(ctx context.Context, name string) ([]tool.ScheduledEffect, error) {
	list, err := f.service.opts.Effects.List(ctx, f.thread, name)
	out := make([]tool.ScheduledEffect, 0, len(list))
	for _, s := range list {
		out = append(out, tool.ScheduledEffect(s))
	}
	return out, err
}

func (f *effectsOf) Remove(ctx context.Context, id string) (bool, error) {
	return f.service.opts.Effects.Remove(ctx, f.thread, id)
}
