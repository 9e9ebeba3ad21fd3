package enginetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
)

// Effects implements ports.Effects in memory. An effect fires when a test records its firing. Effects is safe for concurrent
// use.
type Effects struct {
	mu      sync.Mutex
	pending []*Scheduled
	calls   map[string]int
}

// Scheduled is a pending effect.
type Scheduled struct {
	ports.ScheduledEffect
	ThreadID  string
	Cause     string
	HookDepth int
}

// Schedule implements ports.Effects.
func (f *Effects) Schedule(_ context.Context, t *store.Thread, req ports.EffectRequest) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[t.ID+"/"+req.Cause]++
	for _, p := range f.pending {
		if p.ThreadID == t.ID && p.Cause == req.Cause {
			return p.ID, nil
		}
	}
	now := time.Now()
	p := &Scheduled{ThreadID: t.ID, Cause: req.Cause, HookDepth: req.HookDepth, ScheduledEffect: ports.ScheduledEffect{
		ID: uuid.NewSHA1(uuid.NameSpaceOID, []byte(req.Cause+req.Name)).String(), Name: req.Name, Args: req.Args,
		ScheduledAt: now.Add(req.Delay).UnixMicro(), CreatedAt: now.UnixMicro(),
	}}
	f.pending = append(f.pending, p)
	return p.ID, nil
}

// List implements ports.Effects.
func (f *Effects) List(_ context.Context, t *store.Thread, name string) ([]ports.ScheduledEffect, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []ports.ScheduledEffect{}
	for _, p := range f.pending {
		if p.ThreadID == t.ID && (name == "" || p.Name == name) {
			out = append(out, p.ScheduledEffect)
		}
	}
	return out, nil
}

// Remove implements ports.Effects.
func (f *Effects) Remove(_ context.Context, t *store.Thread, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.pending)
	f.pending = slices.DeleteFunc(f.pending, func(p *Scheduled) bool { return p.ThreadID == t.ID && p.ID == id })
	return len(f.pending) < n, nil
}

// Scheduled returns the pending effects of a thread.
func (f *Effects) Scheduled(threadID string) []Scheduled {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Scheduled
	for _, p := range f.pending {
		if p.ThreadID == threadID {
			out = append(out, *p)
		}
	}
	return out
}

// Calls returns how often Schedule was called, by thread and cause. That is how often a tool was really executed.
func (f *Effects) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for cause, n := range f.calls {
		out[cause] = n
	}
	return out
}

// ID implements ports.Effects. An effect has its id as its name.
func (f *Effects) ID(_ context.Context, namespace, name string) (string, error) {
	if _, err := uuid.Parse(name); err != nil {
		return "", &definition.UnknownError{Message: fmt.Sprintf("there is no ScheduledEffect %q in namespace %q", name, namespace)}
	}
	return name, nil
}
