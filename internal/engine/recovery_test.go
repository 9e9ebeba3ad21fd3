package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// acquisitions counts the leases that an engine takes, and the searches for lost work.
type acquisitions struct {
	store.Store
	taken, searches atomic.Int64
}

func (a *acquisitions) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (*store.Fence, error) {
	a.taken.Add(1)
	return a.Store.Acquire(ctx, id, owner, ttl)
}

func (a *acquisitions) RunnablePage(ctx context.Context, after store.WorkPlace, limit int) ([]string, store.WorkPlace, error) {
	a.searches.Add(1)
	return a.Store.RunnablePage(ctx, after, limit)
}

var _ = Describe("Recovery", Label("RUN-02", "THR-13"), func() {
	It("finds a thread behind any number of older ones that cannot run, and tries those seldom", func(ctx SpecContext) {
		const older = 1100 // more than one search takes
		w := newWorld()
		w.Definitions.Put("works", enginetest.Script(skeinv1.ScriptStep{Content: "well"}))
		for i := range older {
			send(ctx, w, makeThread(ctx, w, fmt.Sprintf("missing-%d", i%3)), "hello")
		}
		id := makeThread(ctx, w, "works")
		send(ctx, w, id, "hello")

		By("starting an engine that was told of none of them")
		met := &acquisitions{Store: w.Store}
		e, _ := start(w, func(o *engine.Options) { o.Threads, o.SweepInterval = w.Over(met), 100*time.Millisecond })
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Eventually(func() int64 { running, waiting := e.Load(); return int64(running + waiting) }).Should(BeZero())
		Eventually(met.taken.Load).Should(BeNumerically(">=", older+1))
		Eventually(func() int64 { running, waiting := e.Load(); return int64(running + waiting) }).Should(BeZero())
		before, searches := met.taken.Load(), met.searches.Load()
		Eventually(met.searches.Load).Should(BeNumerically(">", searches+2))
		Expect(met.taken.Load()-before).To(BeNumerically("<", older/2), "those that were refused are left alone for a while")

		By("making an agent ready")
		w.Definitions.Put("missing-0", enginetest.Script(skeinv1.ScriptStep{Content: "now"}))
		first := w.Threads.Store()
		ids, err := first.Runnable(ctx, 1)
		Expect(err).NotTo(HaveOccurred())
		e.Wake(ids[0])
		Expect(rest(ctx, w, ids[0]).Status).To(Equal(store.RunSucceeded))
	})
})
