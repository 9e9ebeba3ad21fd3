package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// asking is a store that counts attempts to take leases, and holds up reads of some threads.
type asking struct {
	store.Store
	acquired atomic.Int64
	refused  atomic.Int64
	looked   atomic.Int64
	lookedAt sync.Map             // ids of threads
	remote   bool                 // all changes are told as those of another replica
	hold     chan struct{}        // WithWork waits for it, unless it is nil
	heldUp   func(id string) bool // nil for none
	entered  chan string
}

func (a *asking) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (*store.Fence, error) {
	a.acquired.Add(1)
	f, err := a.Store.Acquire(ctx, id, owner, ttl)
	if errors.Is(err, store.ErrLeaseHeld) {
		a.refused.Add(1)
	}
	return f, err
}

func (a *asking) Subscribe(fn func(store.Notification)) (stop func()) {
	return a.Store.Subscribe(func(n store.Notification) {
		n.Remote = n.Remote || a.remote
		fn(n)
	})
}

func (a *asking) WithWork(ctx context.Context, ids []string) (free, held []string, err error) {
	a.looked.Add(1)
	if a.hold != nil {
		<-a.hold
	}
	for _, id := range ids {
		a.lookedAt.Store(id, true)
	}
	return a.Store.WithWork(ctx, ids)
}

func (a *asking) Thread(ctx context.Context, id string) (*store.Thread, error) {
	if a.heldUp != nil && a.heldUp(id) {
		select {
		case a.entered <- id:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return a.Store.Thread(ctx, id)
}

var _ = Describe("Many threads on several replicas", Label("K8S-05", "THR-12"), func() {
	It("cost a replica that does not hold them one question for all, and are taken up when their holder is lost", func(ctx SpecContext) {
		const threads = 30
		w := newWorld()
		w.Definitions.Put("works", enginetest.Script(skeinv1.ScriptStep{Content: "well"}))
		a := &asking{Store: w.Store}
		start(w, func(o *engine.Options) { o.Threads, o.SweepInterval, o.LeaseTTL = w.Over(a), hour, 3*time.Second })
		var ids []string
		for range threads {
			id := makeThread(ctx, w, "works")
			Expect(w.Store.Acquire(ctx, id, "another", 4*time.Second)).NotTo(BeNil())
			send(ctx, w, id, "hello")
			ids = append(ids, id)
		}
		for _, id := range ids {
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		}
		Expect(a.looked.Load()).To(BeNumerically(">", 0))
		Expect(a.acquired.Load()).To(BeNumerically("<=", 2*threads), "one that is told of the message, and one that gets it")
	})

	It("are not asked for by a replica that is told of work which another has taken up", func(ctx SpecContext) {
		const threads = 30
		w := newWorld()
		w.Definitions.Put("works", enginetest.Script(skeinv1.ScriptStep{Content: "well"}))
		a := &asking{Store: w.Store, remote: true, hold: make(chan struct{})}
		start(w, func(o *engine.Options) { o.Threads, o.SweepInterval, o.LeaseTTL = w.Over(a), hour, hour })
		fences := map[string]*store.Fence{}
		for range threads {
			id := makeThread(ctx, w, "works")
			fence, err := w.Store.Acquire(ctx, id, "another", hour)
			Expect(err).NotTo(HaveOccurred())
			fences[id] = fence
			send(ctx, w, id, "hello")
		}
		close(a.hold)
		for id := range fences {
			Eventually(func() bool {
				_, looked := a.lookedAt.Load(id)
				return looked
			}).Should(BeTrue())
		}
		Expect(a.looked.Load()).To(BeNumerically("<", threads), "one question for many")
		for _, fence := range fences { // their holder gives up, and tells that work is left
			Expect(w.Store.Release(ctx, fence)).To(Succeed())
		}
		for id := range fences {
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		}
		Expect(a.refused.Load()).To(BeZero(), "leases that were asked for in vain")
	})

	It("do not delay a stop", Label("RUN-04"), func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("hangs", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		var slow atomic.Pointer[[]string]
		a := &asking{Store: w.Store, entered: make(chan string, 100), heldUp: func(id string) bool {
			for _, s := range deref(slow.Load()) {
				if s == id {
					return true
				}
			}
			return false
		}}
		start(w, func(o *engine.Options) { o.Threads, o.SweepInterval = w.Over(a), 20*time.Millisecond })
		var ids []string
		for range 9 {
			id := makeThread(ctx, w, "hangs")
			send(ctx, w, id, "go")
			Eventually(lastRunOr).WithArguments(ctx, w, id).Should(HaveField("Status", store.RunRunning))
			ids = append(ids, id)
		}
		others := ids[:8]
		slow.Store(&others)
		Eventually(a.entered).Should(Receive())
		Eventually(a.entered).Should(Receive(), "all who look at every thread are held up")
		other, err := engine.New(w.Options())
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Stop(ctx, ids[8], "now")).To(Succeed())
		Expect(lastRun(ctx, w, ids[8])).To(HaveField("Status", store.RunStopped))
	})
})

func deref(ids *[]string) []string {
	if ids == nil {
		return nil
	}
	return *ids
}
