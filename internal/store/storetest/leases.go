package storetest

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeLeases(e *env) {
	Describe("leases", Label("THR-12"), func() {
		const ttl = 10 * time.Second
		acquire := func(ctx SpecContext, id, owner string) *store.Fence {
			GinkgoHelper()
			f, err := e.store.Acquire(ctx, id, owner, ttl)
			Expect(err).NotTo(HaveOccurred())
			return f
		}
		write := func() store.Op { return &store.AppendMessage{Message: message("w")} }

		It("have one holder at a time", func(ctx SpecContext) {
			id := e.thread(ctx)
			f := acquire(ctx, id, "a")
			Expect(*f).To(Equal(store.Fence{ThreadID: id, Owner: "a", Epoch: f.Epoch}))
			for _, owner := range []string{"b", "a"} {
				_, err := e.store.Acquire(ctx, id, owner, ttl)
				Expect(err).To(MatchError(store.ErrLeaseHeld))
			}
			Expect(e.store.Apply(ctx, id, f, write())).To(Succeed())
			acquire(ctx, e.thread(ctx), "a") // another thread is independent
		})

		It("end when released, which may be repeated", func(ctx SpecContext) {
			id := e.thread(ctx)
			f := acquire(ctx, id, "a")
			Expect(e.store.Release(ctx, f)).To(Succeed())
			Expect(e.store.Release(ctx, f)).To(Succeed())
			Expect(e.store.Apply(ctx, id, f, write())).To(MatchError(store.ErrFenced))
			Expect(e.store.Apply(ctx, id, &store.Fence{ThreadID: id, Epoch: f.Epoch}, write())).To(MatchError(store.ErrFenced), "no writer has it")
			Expect(e.store.Renew(ctx, f, ttl)).To(MatchError(store.ErrFenced))
			next := acquire(ctx, id, "b")
			Expect(next.Epoch).To(BeNumerically(">", f.Epoch))
			Expect(e.store.Release(ctx, f)).To(Succeed())
			Expect(e.store.Apply(ctx, id, next, write())).To(Succeed())
		})

		It("pass to another holder when they expire, and fence the old one", func(ctx SpecContext) {
			id := e.thread(ctx)
			old := acquire(ctx, id, "a")
			e.clock.Step(ttl)
			next := acquire(ctx, id, "b")
			Expect(next.Epoch).To(BeNumerically(">", old.Epoch))
			version := e.info(ctx, id).Version
			Expect(e.store.Apply(ctx, id, old, write(), queued("m", "x"))).To(MatchError(store.ErrFenced))
			Expect(e.info(ctx, id).Version).To(Equal(version))
			Expect(e.store.Renew(ctx, old, ttl)).To(MatchError(store.ErrFenced))
			Expect(e.store.Release(ctx, old)).To(Succeed())
			_, err := e.store.Acquire(ctx, id, "c", ttl)
			Expect(err).To(MatchError(store.ErrLeaseHeld), "a stale release takes nothing away")
			Expect(e.store.Apply(ctx, id, next, write())).To(Succeed())
		})

		It("stay valid for writes after they expired until another holder takes them", func(ctx SpecContext) {
			id := e.thread(ctx)
			f := acquire(ctx, id, "a")
			e.clock.Step(2 * ttl)
			Expect(e.store.Apply(ctx, id, f, write())).To(Succeed())
			Expect(e.store.Renew(ctx, f, ttl)).To(Succeed())
			_, err := e.store.Acquire(ctx, id, "b", ttl)
			Expect(err).To(MatchError(store.ErrLeaseHeld))
		})

		It("last as long as they are renewed", func(ctx SpecContext) {
			id := e.thread(ctx)
			f := acquire(ctx, id, "a")
			for range 5 {
				e.clock.Step(ttl - time.Second)
				Expect(e.store.Renew(ctx, f, ttl)).To(Succeed())
			}
			e.clock.Step(ttl - time.Second)
			_, err := e.store.Acquire(ctx, id, "b", ttl)
			Expect(err).To(MatchError(store.ErrLeaseHeld))
		})

		It("of one thread are not valid for another, and a made-up one is refused", func(ctx SpecContext) {
			one, two := e.thread(ctx), e.thread(ctx)
			f := acquire(ctx, one, "a")
			g := acquire(ctx, two, "a")
			Expect(e.store.Apply(ctx, two, f, write())).To(MatchError(store.ErrFenced))
			for _, forged := range []store.Fence{
				{ThreadID: two, Owner: "a", Epoch: g.Epoch + 1}, {ThreadID: two, Owner: "b", Epoch: g.Epoch}, {ThreadID: two, Epoch: g.Epoch},
			} {
				Expect(e.store.Apply(ctx, two, &forged, write())).To(MatchError(store.ErrFenced))
			}
			never := e.thread(ctx)
			Expect(e.store.Apply(ctx, never, &store.Fence{ThreadID: never, Owner: "a", Epoch: 1}, write())).To(MatchError(store.ErrFenced))
			Expect(e.store.Apply(ctx, two, nil, write())).To(Succeed(), "from outside a run")
		})
	})
}

func describeRunnable(e *env) {
	Describe("threads that may run", func() {
		runnable := func(ctx SpecContext, limit int) []string {
			GinkgoHelper()
			found, err := e.store.Runnable(ctx, limit)
			Expect(err).NotTo(HaveOccurred())
			return found
		}
		put := func(status store.RunStatus) store.Op { return &store.PutRun{Run: store.Run{ID: "r", Status: status}} }

		It("have items in the inbox and no holder", func(ctx SpecContext) {
			idle, busy := e.thread(ctx), e.thread(ctx)
			Expect(runnable(ctx, 10)).To(BeEmpty())
			e.say(ctx, idle, "an injected message starts nothing")
			Expect(runnable(ctx, 10)).To(BeEmpty())
			e.apply(ctx, busy, queued("m", "go"))
			Expect(runnable(ctx, 10)).To(Equal([]string{busy}))
			f, err := e.store.Acquire(ctx, busy, "a", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(runnable(ctx, 10)).To(BeEmpty())
			free, held, err := e.store.WithWork(ctx, []string{idle, busy, "none"})
			Expect(err).NotTo(HaveOccurred())
			Expect(free).To(BeEmpty())
			Expect(held).To(Equal([]string{busy}))
			Expect(e.store.Release(ctx, f)).To(Succeed())
			free, held, err = e.store.WithWork(ctx, []string{idle, busy, "none"})
			Expect(err).NotTo(HaveOccurred())
			Expect(free).To(Equal([]string{busy}))
			Expect(held).To(BeEmpty())
			Expect(runnable(ctx, 10)).To(Equal([]string{busy}))
			e.apply(ctx, busy, &store.Dequeue{Seqs: []int64{e.inbox(ctx, busy)[0].Seq}})
			Expect(runnable(ctx, 10)).To(BeEmpty())
		})

		It("include those whose run was running when its holder was lost", Label("RUN-02"), func(ctx SpecContext) {
			id := e.thread(ctx)
			f, err := e.store.Acquire(ctx, id, "a", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Apply(ctx, id, f, put(store.RunRunning))).To(Succeed())
			Expect(e.store.Apply(ctx, id, f, put(store.RunRunning))).To(Succeed(), "again, with other fields")
			Expect(runnable(ctx, 10)).To(BeEmpty())
			e.clock.Step(2 * time.Minute)
			Expect(runnable(ctx, 10)).To(Equal([]string{id}))
			e.apply(ctx, id, put(store.RunSucceeded))
			Expect(runnable(ctx, 10)).To(BeEmpty())
		})

		It("include those whose run waits only when the inbox has an item", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, put(store.RunRunning))
			e.apply(ctx, id, put(store.RunWaiting))
			Expect(runnable(ctx, 10)).To(BeEmpty())
			e.apply(ctx, id, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}})
			Expect(runnable(ctx, 10)).To(Equal([]string{id}))
		})

		It("are listed oldest work first, with namespaces taking turns", func(ctx SpecContext) {
			var big, small []string
			for range 5 {
				e.clock.Step(time.Second)
				big = append(big, e.threadIn(ctx, "big", queued("m", "go")))
			}
			for range 2 {
				e.clock.Step(time.Second)
				small = append(small, e.threadIn(ctx, "small", queued("m", "go")))
			}
			Expect(runnable(ctx, 10)).To(Equal([]string{big[0], small[0], big[1], small[1], big[2], big[3], big[4]}))
			Expect(runnable(ctx, 3)).To(Equal([]string{big[0], small[0], big[1]}))

			// After something was taken, the age of the work is that of the oldest item left.
			e.clock.Step(time.Second)
			e.apply(ctx, big[0], queued("m2", "more"))
			e.apply(ctx, big[0], &store.Dequeue{Seqs: []int64{e.inbox(ctx, big[0])[0].Seq}})
			Expect(runnable(ctx, 1)).To(Equal([]string{big[1]}))
			Expect(runnable(ctx, 10)[6]).To(Equal(big[0]))
		})

		It("are all listed by those who go on behind each page, though none is taken", func(ctx SpecContext) {
			var all []string
			for range 5 {
				all = append(all, e.threadIn(ctx, "big", queued("m", "go"))) // of one time
			}
			e.clock.Step(time.Second)
			all = append(all, e.threadIn(ctx, "small", queued("m", "go")), e.threadIn(ctx, "big", queued("m", "go")))
			var listed []string
			var place store.WorkPlace
			for pages := 1; ; pages++ {
				ids, next, err := e.store.RunnablePage(ctx, place, 2)
				Expect(err).NotTo(HaveOccurred())
				listed = append(listed, ids...)
				if place = next; place == nil {
					Expect(pages).To(Equal(4))
					break
				}
				Expect(ids).To(HaveLen(2))
			}
			Expect(listed).To(ConsistOf(all))
			ids, next, err := e.store.RunnablePage(ctx, nil, len(all))
			Expect(err).NotTo(HaveOccurred())
			Expect(ids).To(HaveLen(len(all)))
			Expect(next).To(BeNil(), "nothing follows a page that holds the last")
		})

		It("are found among many idle ones", func(ctx SpecContext) {
			for i := range 300 {
				e.threadIn(ctx, fmt.Sprint("ns-", i%7))
			}
			id := e.threadIn(ctx, "ns-3", queued("m", "go"))
			Expect(runnable(ctx, 10)).To(Equal([]string{id}))
		})
	})
}
