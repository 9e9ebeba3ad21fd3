package process

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox"
)

// counted is a sandbox that records since when it has been idle.
type counted struct {
	sandbox.Sandbox
	clock clock.PassiveClock

	mu      sync.Mutex
	running int
	since   time.Time
}

func newCounted(s sandbox.Sandbox, c clock.PassiveClock) *counted {
	return &counted{Sandbox: s, clock: c, since: c.Now()}
}

func (c *counted) touch() {
	c.mu.Lock()
	c.since = c.clock.Now()
	c.mu.Unlock()
}

// begin counts an execution that runs.
func (c *counted) begin() {
	c.mu.Lock()
	c.running++
	c.mu.Unlock()
}

// end counts an execution that has ended. The time since the last end is how long nothing has run.
func (c *counted) end() {
	c.mu.Lock()
	c.running--
	c.since = c.clock.Now()
	c.mu.Unlock()
}

// idleFor returns for how long nothing has run.
func (c *counted) idleFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running > 0 {
		return 0
	}
	return c.clock.Since(c.since)
}

// RunCode implements sandbox.Sandbox.
func (c *counted) RunCode(ctx context.Context, req sandbox.CodeRequest) sandbox.Execution {
	c.begin()
	e := c.Sandbox.RunCode(ctx, req)
	go func() {
		<-e.Done()
		c.end()
	}()
	return e
}

// OpenIsolate implements sandbox.Sandbox. An open isolate counts as running.
func (c *counted) OpenIsolate(ctx context.Context, req sandbox.IsolateRequest) (sandbox.Isolate, error) {
	c.begin()
	i, err := c.Sandbox.OpenIsolate(ctx, req)
	if err != nil {
		c.end()
		return nil, err
	}
	return &countedIsolate{Isolate: i, end: sync.OnceFunc(c.end)}, nil
}

type countedIsolate struct {
	sandbox.Isolate
	end func()
}

// Close implements sandbox.Isolate.
func (i *countedIsolate) Close() error {
	i.end()
	return i.Isolate.Close()
}

// Unwrap returns the isolate that this one counts.
func (i *countedIsolate) Unwrap() sandbox.Isolate { return i.Isolate }
