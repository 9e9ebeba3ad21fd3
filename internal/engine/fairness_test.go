package engine_test

import (
	"context"
	"runtime"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/thread"
)

// tenants are definitions that every namespace has, and note for which of them runs begin.
type tenants struct {
	ports.Definitions
	hold chan struct{} // runs begin when it is closed

	mu     sync.Mutex
	served []string
}

func (t *tenants) Agent(ctx context.Context, namespace, name string) (*definition.Agent, error) {
	t.mu.Lock()
	t.served = append(t.served, namespace)
	t.mu.Unlock()
	select {
	case <-t.hold:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return t.Definitions.Agent(ctx, enginetest.Namespace, name)
}

// before tells for how many threads of others runs began before the first of a namespace did.
func (t *tenants) before(namespace string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Index(t.served, namespace)
}

var _ = Describe("Namespaces", func() {
	It("take turns, and what waits for its turn holds no goroutine", func(ctx SpecContext) {
		const many = 300
		w := newWorld()
		w.Definitions.Put("echo", enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))
		t := &tenants{Definitions: w.Definitions, hold: make(chan struct{})}
		in := func(namespace string) func(*thread.NewThread) {
			return func(n *thread.NewThread) { n.Namespace = namespace }
		}
		var busy []string
		for range many {
			busy = append(busy, makeThread(ctx, w, "echo", in("busy")))
		}
		late := makeThread(ctx, w, "echo", in("quiet"))
		e, _ := start(w, func(o *engine.Options) { o.Workers, o.Definitions = 1, t })
		load := func() [2]int { running, waiting := e.Load(); return [2]int{running, waiting} }
		send(ctx, w, busy[0], "hello")
		Eventually(load).WithContext(ctx).Should(Equal([2]int{1, 0}))
		before := runtime.NumGoroutine()
		for _, id := range busy[1:] {
			send(ctx, w, id, "hello")
		}
		Eventually(load).WithContext(ctx).Should(Equal([2]int{1, many - 1}))
		Expect(runtime.NumGoroutine()-before).To(BeNumerically("<", many/10), "goroutines for %d threads that wait", many)
		send(ctx, w, late, "hello")
		Eventually(load).WithContext(ctx).Should(Equal([2]int{1, many}))
		close(t.hold)
		rest(ctx, w, late)
		Expect(t.before("quiet")).To(BeNumerically("<=", 2), "the one that was under way, and at most one more")
		for _, id := range busy {
			rest(ctx, w, id)
		}
	}, NodeTimeout(manyPlays))
})
