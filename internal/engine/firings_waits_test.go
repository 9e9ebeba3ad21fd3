package engine_test

import (
	"context"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// full are sandboxes of a pool that is full until free is closed.
type full struct {
	ports.Sandboxes
	free chan struct{}
}

func (s full) Acquire(ctx context.Context, t *store.Thread, pool string) (sandbox.Sandbox, func(), error) {
	ports.ReportWait(ctx, &ports.NoSandboxError{Message: "the pool is full"})
	select {
	case <-s.free:
		return s.Sandboxes.Acquire(ctx, t, pool)
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

var _ = Describe("Firings that wait for a place in a full pool", Label("EFF-07", "COD-09"), func() {
	var w *enginetest.World
	var free chan struct{}
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		free = make(chan struct{})
		w.Sandboxes = full{sandboxes, free}
		w.Definitions.Put("a", codeTool("greet", `export default () => 'hello'`), enginetest.Script(enginetest.Say("done")))
		putEffect(w, "brief", `export default () => {}`)
		putEffect(w, "held", `export default async (state) => { while (!(await state.getValue('go'))); }`)
		start(w)
	})
	firing := func(ctx context.Context, f store.Firing) func() (*store.Firing, error) {
		return func() (*store.Firing, error) { return w.Store.Firing(ctx, f.Key()) }
	}
	waits := HaveValue(And(HaveField("Waiting", "no sandbox is available: the pool is full"), HaveField("Status", store.FiringPending), HaveField("Attempts", 1)))
	succeeds := And(HaveField("Status", store.FiringSucceeded), HaveField("Error", ""), HaveField("Attempts", 1), HaveField("Waiting", ""))

	It("say so before the wait has failed, until their handler begins", func(ctx SpecContext) {
		id := makeThread(ctx, w, "a")
		f := fireEffect(ctx, w, id, "held", nil)
		Eventually(firing(ctx, f)).Should(waits)
		close(free)
		Eventually(firing(ctx, f)).Should(HaveValue(And(HaveField("Waiting", ""), HaveField("Status", store.FiringPending))))
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetValue(ctx, "go", []byte("true"))).To(Succeed())
		Expect(endedFiring(ctx, w, f)).To(succeeds)
	})

	It("say so without a thread", func(ctx SpecContext) {
		f := store.Firing{EffectID: uuid.NewString(), Due: time.Now().UnixMicro(), Namespace: enginetest.Namespace, Name: "se", Effect: "brief", Origin: store.OriginSchedule}
		Expect(w.Store.RecordFiring(ctx, f)).To(BeTrue())
		Eventually(firing(ctx, f)).Should(waits)
		close(free)
		Expect(endedFiring(ctx, w, f)).To(succeeds)
	})

	It("say so while the code of the tool that they queue is asked for its parameters", func(ctx SpecContext) {
		f := fireEffect(ctx, w, makeThread(ctx, w, "a"), "", nil, func(f *store.Firing) { f.Target = effects.Target{Queue: &effects.ToolCall{Name: "greet"}}.Encode() })
		Eventually(firing(ctx, f)).Should(waits)
		close(free)
		Expect(endedFiring(ctx, w, f)).To(succeeds)
	})
})
