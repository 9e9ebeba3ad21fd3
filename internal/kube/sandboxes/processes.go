package sandboxes

import (
	"cmp"
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// ProcessPool runs supervisors as local processes, one per thread, and ends those that are idle.
type ProcessPool interface {
	// AcquireOn returns the thread's process, the same one until it ends. A new process runs the given engine.
	AcquireOn(ctx context.Context, threadID string, engine sandbox.Engine) (sandbox.Sandbox, error)
	// Release ends the thread's process.
	Release(threadID string)
	Close() error
}

// Processes implements the port without a node: sandboxes are local processes. It uses only the engine of
// SandboxPools.
type Processes struct {
	pool   ProcessPool
	client client.Reader
	ends   sync.WaitGroup

	mu     sync.Mutex
	given  map[string]sandbox.Sandbox // by thread id: the sandbox that Acquire returned last; mu guards both maps
	ending map[string]chan struct{}   // by thread id: closed when a process has ended
}

var _ Port = (*Processes)(nil)

// NewProcesses returns the port over local processes. Close also closes the pool. c reads the SandboxPools.
func NewProcesses(pool ProcessPool, c client.Reader) *Processes {
	return &Processes{pool: pool, client: c, given: map[string]sandbox.Sandbox{}, ending: map[string]chan struct{}{}}
}

// Acquire implements ports.Sandboxes. The processes detect themselves when they are idle.
func (p *Processes) Acquire(ctx context.Context, thread *store.Thread, pool string) (sandbox.Sandbox, func(), error) {
	p.mu.Lock()
	ending := p.ending[thread.ID]
	p.mu.Unlock()
	if ending != nil { // otherwise we would get the process that is about to end
		select {
		case <-ending:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	engine, err := p.engine(ctx, thread.Namespace, pool)
	if err != nil {
		return nil, nil, err
	}
	sbx, err := p.pool.AcquireOn(ctx, thread.ID, engine)
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given[thread.ID] = sbx
	return sbx, func() {}, nil
}

// engine returns the engine of the thread's pool, which need not exist here.
func (p *Processes) engine(ctx context.Context, namespace, pool string) (sandbox.Engine, error) {
	var object skeinv1.SandboxPool
	key := client.ObjectKey{Namespace: namespace, Name: cmp.Or(pool, skeinv1.DefaultPoolName)}
	if err := p.client.Get(ctx, key, &object); err != nil {
		return sandbox.QuickJS, client.IgnoreNotFound(err)
	}
	if err := objects.CheckDecoded(&object); err != nil {
		return "", objects.Within("SandboxPool", key.Name, err)
	}
	return sandbox.Engine(object.Spec.Engine), nil
}

// Discard implements ports.Sandboxes. When several callers saw a process fail, one of them ends it, and none of them
// ends the next process.
func (p *Processes) Discard(_ context.Context, thread *store.Thread, sbx sandbox.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given[thread.ID] == sbx {
		p.end(thread.ID)
	}
}

// Forget implements Port.
func (p *Processes) Forget(threadID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given[threadID] != nil {
		p.end(threadID)
	}
}

// end ends a process without waiting for it. mu is held.
func (p *Processes) end(threadID string) {
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
func (p *Processes) Close() error {
	err := p.pool.Close()
	p.ends.Wait()
	return err
}
