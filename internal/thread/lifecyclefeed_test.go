package thread_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// unfinished is a store with a transaction in progress that may still write entries of the feed, before all that come.
type unfinished struct {
	store.Store
	ended bool
}

func (u *unfinished) Lifecycle(ctx context.Context, q store.LifecycleQuery) (*store.LifecyclePage, error) {
	if u.ended {
		return u.Store.Lifecycle(ctx, q)
	}
	return &store.LifecyclePage{Next: q.After, InFlight: true}, nil
}

var _ = Describe("a list of lifecycle events", Label("STA-06"), func() {
	It("ends while a transaction goes on for long, and has what follows later", func(ctx SpecContext) {
		e := newEnv(ctx)
		s := &unfinished{Store: e.store}
		svc := thread.NewService(thread.Options{Store: s, Blobs: e.bucket, Clock: e.clock})
		e.create(ctx, "t")
		list := func() (types []string) {
			defer GinkgoRecover()
			for ev, err := range svc.Lifecycle(ctx, thread.LifecycleOptions{}) {
				Expect(err).NotTo(HaveOccurred())
				types = append(types, ev.Type)
			}
			return types
		}
		ended := make(chan []string, 1)
		go func() { ended <- list() }()
		Eventually(ctx, func() <-chan []string {
			if e.clock.HasWaiters() {
				e.clock.Step(20 * time.Millisecond)
			}
			return ended
		}).Should(Receive(BeEmpty()))
		s.ended = true
		Expect(list()).To(Equal([]string{store.LifecycleThreadCreated}))
	})
})
