package engine_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The end of a session whose handler failed", Label("AGT-09", "STA-06"), func() {
	var w *enginetest.World
	var sandboxes *enginetest.Processes
	BeforeEach(func() {
		w = newWorld()
		var err error
		sandboxes, err = w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})
	logged := func(ctx context.Context, id string) (out []string) {
		GinkgoHelper()
		list, err := w.Store.Events(ctx, id, 0, 1000)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range list {
			out = append(out, string(e.Data))
		}
		return out
	}
	const listener = `ctx.session.addEventListener('completed', () => ctx.logger.info('told'));`

	DescribeTable("calls no listeners and reports no failure of them", func(ctx SpecContext, source string) {
		w.Definitions.Put("a", handler(source, nil), func(a *definition.Agent) { a.A.Handler.Timeout = 300 * time.Millisecond })
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunFailed))
		Eventually(func() int { _, held := sandboxes.Counts(); return held }).Should(BeZero(), "its log is complete")
		Expect(logged(ctx, id)).NotTo(ContainElement(Or(ContainSubstring("listeners for the end"), ContainSubstring("told"))))
	},
		Entry("it threw", `export default createAgent('A', { handler: async (ctx) => { `+listener+` throw new Error('no'); } });`),
		Entry("it took too long, and waits", `export default createAgent('A', { handler: async (ctx) => { `+listener+` await new Promise(() => {}); } });`),
		Entry("it took too long, and computes", `export default createAgent('A', { handler: async (ctx) => { `+listener+` for (;;); } });`),
		Entry("it used too much memory", `export default createAgent('A', { handler: async (ctx) => { `+listener+` const a = []; for (;;) a.push(new Array(1e5).fill(1)); } });`),
		Entry("its module throws", `throw new Error('broken'); export default createAgent('A', { handler: async () => 'x' });`),
		Entry("it is no agent", `export default 5;`),
	)
})
