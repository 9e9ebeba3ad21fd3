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

// late are sandboxes of which none is free before the time limit of the caller has passed, if the caller has one.
type late struct{ ports.Sandboxes }

func (s late) Acquire(ctx context.Context, t *store.Thread, pool string) (sandbox.Sandbox, func(), error) {
	if _, limited := ctx.Deadline(); limited {
		<-ctx.Done()
		return nil, nil, context.Cause(ctx)
	}
	return s.Sandboxes.Acquire(ctx, t, pool)
}

var _ = Describe("The timeout of a firing that waits for a sandbox", Label("EFF-04", "COD-09"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		w.Sandboxes = late{sandboxes}
		w.Definitions.Put("a", codeTool("greet", `export default () => 'hello'`), enginetest.Script(enginetest.Say("done")))
		putEffect(w, "brief", `export default () => {}`)
	})
	limited := func(t effects.Target) func(*store.Firing) {
		t.Timeout = 5 * time.Second
		return func(f *store.Firing) { f.Target = t.Encode() }
	}
	succeeds := And(HaveField("Status", store.FiringSucceeded), HaveField("Error", ""), HaveField("Attempts", 1))

	It("does not count before its handler begins", func(ctx SpecContext) {
		start(w)
		Expect(endedFiring(ctx, w, fireEffect(ctx, w, makeThread(ctx, w, "a"), "brief", nil, limited(effects.Target{})))).To(succeeds)
	})

	It("does not count before the handler of an effect without a thread begins", func(ctx SpecContext) {
		start(w)
		f := store.Firing{EffectID: uuid.NewString(), Due: time.Now().UnixMicro(), Namespace: enginetest.Namespace, Name: "se", Effect: "brief", Origin: store.OriginSchedule}
		limited(effects.Target{})(&f)
		Expect(w.Store.RecordFiring(ctx, f)).To(BeTrue())
		Expect(endedFiring(ctx, w, f)).To(succeeds)
	})

	It("does not count while the code of the tool that it queues is asked for its parameters", func(ctx SpecContext) {
		start(w)
		Expect(endedFiring(ctx, w, fireEffect(ctx, w, makeThread(ctx, w, "a"), "", nil, limited(effects.Target{Queue: &effects.ToolCall{Name: "greet"}})))).To(succeeds)
	})
})
