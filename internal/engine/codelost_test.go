package engine_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// givenUp are sandboxes whose connection is closed just before a call, as the port closes it when another replica has
// given the pod up meanwhile.
type givenUp struct {
	ports.Sandboxes
	mu     sync.Mutex
	before map[string]int // by thread id: which of the calls of runCode
	calls  map[string]int
}

func (g *givenUp) Acquire(ctx context.Context, t *store.Thread, pool string) (sandbox.Sandbox, func(), error) {
	s, release, err := g.Sandboxes.Acquire(ctx, t, pool)
	return &givenUpSandbox{Sandbox: s, all: g, thread: t.ID}, release, err
}

type givenUpSandbox struct {
	sandbox.Sandbox
	all    *givenUp
	thread string
}

func (s *givenUpSandbox) RunCode(ctx context.Context, req sandbox.CodeRequest) sandbox.Execution {
	s.all.mu.Lock()
	s.all.calls[s.thread]++
	goes := s.all.calls[s.thread] == s.all.before[s.thread]
	s.all.mu.Unlock()
	if goes {
		_ = s.Close()
	}
	return s.Sandbox.RunCode(ctx, req)
}

var _ = Describe("Code whose sandbox was given up between two calls", func() {
	It("runs in another one, of a model and of another thread's code", Label("COD-09"), func(ctx SpecContext) {
		w := newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		g := &givenUp{Sandboxes: sandboxes, before: map[string]int{}, calls: map[string]int{}}
		w.Sandboxes = g
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinCode), codeTool("t", `export default async (state) => {
				const child = await state.getChildThread('helper-1');
				const run = await child.runCode('export default async () => (await here()) + 1', { globals: { here: async () => 41 } });
				return run.status + ' ' + run.result;
			}`), enginetest.Script(enginetest.Call("t", nil), enginetest.Call("run_code", map[string]any{"source": "export default 1"}),
			enginetest.Call("run_code", map[string]any{"source": "export default 2"}), enginetest.Say("done")))
		start(w)
		parent := makeThread(ctx, w, "a")
		child := makeThread(ctx, w, "a", func(n *thread.NewThread) {
			n.ParentID, n.Reference, n.Child = parent, "helper-1", &store.Child{Name: "helper", Resumable: true}
		})
		g.mu.Lock()
		g.before[child], g.before[parent] = 1, 2
		g.mu.Unlock()
		send(ctx, w, parent, "go")
		rest(ctx, w, parent)
		Expect(told(ctx, w, parent)).To(HaveExactElements("user: go", "assistant ->t", "tool t success: success 42",
			"assistant ->run_code", ContainSubstring(`"result":1`), "assistant ->run_code", ContainSubstring(`"result":2`), "assistant: done"))
	})
})
