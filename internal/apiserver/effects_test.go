package apiserver

import (
	"context"
	"time"

	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
)

// memoryEffects is a port for effects that keeps them in memory.
type memoryEffects struct {
	pending []ports.ScheduledEffect
	pages   int
	asked   ports.EffectRequest
	err     error
}

func (m *memoryEffects) Schedule(_ context.Context, _ *store.Thread, r ports.EffectRequest) (string, error) {
	m.asked = r
	return "5c4fe7a4-7a7c-4c7b-9e0e-000000000001", m.err
}

func (m *memoryEffects) List(_ context.Context, _ *store.Thread, name string) (out []ports.ScheduledEffect, _ error) {
	for _, e := range m.pending {
		if name == "" || e.Name == name {
			out = append(out, e)
		}
	}
	return out, nil
}

func (m *memoryEffects) Page(ctx context.Context, t *store.Thread, q ports.EffectPage) ([]ports.ScheduledEffect, bool, error) {
	m.pages++
	all, _ := m.List(ctx, t, q.Name)
	page, more := call.Cut(all, q.Limit, q.Offset)
	for i := range page {
		if q.MaxBytes -= int64(len(page[i].Args)); q.MaxBytes <= 0 && i+1 < len(page) {
			return page[:i+1], true, nil
		}
	}
	return page, more, nil
}

func (m *memoryEffects) Remove(_ context.Context, _ *store.Thread, id string) (bool, error) {
	for i, e := range m.pending {
		if e.ID == id {
			m.pending = append(m.pending[:i], m.pending[i+1:]...)
			return true, nil
		}
	}
	return false, nil
}

// Next implements effects.Effects. Effects are due every hour.
func (*memoryEffects) Next(_ context.Context, _, _ string, n int) (next []int64, _ error) {
	for i := range n {
		next = append(next, int64(i+1)*time.Hour.Microseconds())
	}
	return next, nil
}

// ID implements ports.Effects.
func (*memoryEffects) ID(_ context.Context, namespace, name string) (string, error) {
	if name == "none" {
		return "", &definition.UnknownError{Message: "there is no ScheduledEffect \"none\" in namespace \"" + namespace + "\""}
	}
	return "effect-" + name, nil
}
