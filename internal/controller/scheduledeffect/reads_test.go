package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// readCounter counts the reads of firings.
type readCounter struct {
	scheduledeffect.Store
	lists, ones int
}

func (c *readCounter) Firings(ctx context.Context, q store.FiringQuery) ([]store.Firing, error) {
	c.lists++
	return c.Store.Firings(ctx, q)
}

func (c *readCounter) Firing(ctx context.Context, k store.FiringKey) (*store.Firing, error) {
	c.ones++
	return c.Store.Firing(ctx, k)
}

var _ = Describe("A firing of an effect of one time", Label("EFF-04"), func() {
	It("is read once by each reconcile, without its arguments", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.thread(ctx)
		o := w.r.Options
		reads := &readCounter{Store: o.Store}
		o.Store = reads
		w.r = scheduledeffect.New(o)
		w.declare(ctx, forThread, once(time.Minute))
		Reconcile(ctx, w.r, w.s)
		Expect(reads.lists).To(BeZero(), "it is not due")
		w.Clock.Step(time.Minute)
		for n := range 3 {
			if n == 2 {
				Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
			}
			Reconcile(ctx, w.r, w.s)
			Expect(reads.lists).To(Equal(n + 1))
		}
		Expect(reads.ones).To(BeZero())
		Expect(Get(ctx, w.Env, w.s).Status.Phase).To(Equal("Succeeded"))
	})
})
