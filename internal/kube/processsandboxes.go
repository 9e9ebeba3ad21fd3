package kube

import (
	"context"
	"sync"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// Sandboxes is the engine's port, and what the thread controller tells it.
type Sandboxes interface {
	engine.Sandboxes
	// Forget drops the sandbox of a thread that is gone; nothing of the thread's runs any more. It waits for
	// nothing.
	Forget(threadID string)
}

// ProcessPool runs supervisors as local processes, one for a thread, and ends those that idle.
type ProcessPool interface {
	// Acquire gives the thread's process, the same one until it ends.
	Acquire(ctx context.Context, threadID string) (sandbox.Sandbox, error)
	// Release ends the thread's process.
	Release(threadID string)
	Close() error
}

// ProcessSandboxes is the port for machines without a node. SandboxPools do not matter in it.
type ProcessSandboxes struct {
	pool ProcessPool
	ends sync.WaitGroup

	mu     sync.Mutex
	given  map[string]sandbox.Sandbox // by thread id: the one that Acquire gave last
	ending map[string]chan struct{}   // by thread id: closed when a process has ended
}

var _ Sandboxes = (*ProcessSandboxes)(nil)

// NewProcessSandboxes makes the port over local processes, which it closes with itself.
func NewProcessSandboxes(pool ProcessPool) *ProcessSandboxes {
	return &ProcessSandboxes{pool: pool, given: map[string]sandbox.Sandbox{}, ending: map[string]chan struct{}{}}
}

// Acquire implements engine.Sandboxes. The processes know themselves when they are idle.
func (p *ProcessSandboxes) Acquire(ctx context.Context, thread *store.Thread, _ string) (sandbox.Sandbox, func(), error) {
	p.mu.Lock()
	ending := p.ending[thread.ID]
	p.mu.Unlock()
	if ending != nil { // else we would get the process that is about to go
		select {
		case <-ending:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	sbx, err := p.pool.Acquire(ctx, thread.ID)
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given[thread.ID] = sbx
	return sbx, func() {}, nil
}

// Discard implements engine.Sandboxes. Of several callers that saw a process fail one ends it, and none ends
// the next one.
func (p *ProcessSandboxes) Discard(_ context.Context, thread *store.Thread, sbx sandbox.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given[thread.ID] == sbx {
		p.end(thread.ID)
	}
}

// Forget implements Sandboxes.
func (p *ProcessSandboxes) Forget(threadID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given[threadID] != nil {
		p.end(threadID)
	}
}

// end ends a process without waiting for it; mu is held.
func (p *ProcessSandboxes) end(threadID string) {
	delete(p.given, threadID)
	done := make(chan struct{})
	p.ending[threadID] = done
	p.ends.Go(func() {
		p.pool.Release(threadID)
		p.mu.Lock()
		delete(p.ending, threadID)
		p.mu.Unlock()
		close(done)
	})
}

// Close ends every process and waits for them.
func (p *ProcessSandboxes) Close() error {
	err := p.pool.Close()
	p.ends.Wait()
	return err
}
