package storetest

import (
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describePermits(e *env) {
	Describe("permits of calls", Label("AGT-06"), func() {
		ask := func(ctx SpecContext, id string, r store.PermitRequest) store.PermitAnswer {
			GinkgoHelper()
			r.Namespace, r.Model, r.ID, r.TTL = "ns", "m", id, time.Minute
			out, err := e.store.TakePermit(ctx, r)
			Expect(err).NotTo(HaveOccurred())
			return out
		}
		give := func(ctx SpecContext, id string, tokens int64) {
			GinkgoHelper()
			Expect(e.store.ReturnPermit(ctx, "ns", "m", id, tokens)).To(Succeed())
		}
		granted := store.PermitAnswer{Granted: true}

		It("are limited to a number at once, and granted in the order of the requests", func(ctx SpecContext) {
			two := store.PermitRequest{Concurrent: 2}
			Expect(ask(ctx, "a", two)).To(Equal(granted))
			Expect(ask(ctx, "b", two)).To(Equal(granted))
			Expect(ask(ctx, "b", two)).To(Equal(granted), "the answer may have been lost")
			Expect(ask(ctx, "c", two)).To(Equal(store.PermitAnswer{}))
			e.clock.Step(time.Millisecond)
			Expect(ask(ctx, "d", two)).To(Equal(store.PermitAnswer{}))
			give(ctx, "a", 0)
			Expect(ask(ctx, "d", two)).To(Equal(store.PermitAnswer{}), "c was first")
			Expect(ask(ctx, "c", two)).To(Equal(granted))
			give(ctx, "b", 0)
			Expect(ask(ctx, "d", two)).To(Equal(granted))
			out, err := e.store.TakePermit(ctx, store.PermitRequest{Namespace: "ns", Model: "other", ID: "a", Concurrent: 1, TTL: time.Minute})
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(Equal(granted), "of another model")
		})

		It("expire unless they are renewed, and so do places in the queue", func(ctx SpecContext) {
			one := store.PermitRequest{Concurrent: 1}
			Expect(ask(ctx, "a", one)).To(Equal(granted))
			ask(ctx, "lost", one)
			e.clock.Step(40 * time.Second)
			Expect(e.store.RenewPermit(ctx, "ns", "m", "a", time.Minute)).To(Succeed())
			Expect(ask(ctx, "b", one)).To(Equal(store.PermitAnswer{}))
			e.clock.Step(40 * time.Second)
			Expect(ask(ctx, "b", one)).To(Equal(store.PermitAnswer{}))
			e.clock.Step(30 * time.Second)
			Expect(ask(ctx, "b", one)).To(Equal(granted))
			Expect(e.store.RenewPermit(ctx, "ns", "m", "a", time.Minute)).To(MatchError(store.ErrNotFound))
			give(ctx, "a", 0)
		})

		It("are limited to a number a minute, and spread over the minute once the first are used up", func(ctx SpecContext) {
			sixty := store.PermitRequest{Requests: 2}
			Expect(ask(ctx, "a", sixty)).To(Equal(granted))
			Expect(ask(ctx, "b", sixty)).To(Equal(granted))
			give(ctx, "a", 0)
			give(ctx, "b", 0)
			out := ask(ctx, "c", sixty)
			Expect(out.Granted).To(BeFalse())
			Expect(out.Wait).To(BeNumerically("~", 30*time.Second, time.Millisecond))
			e.clock.Step(29 * time.Second)
			Expect(ask(ctx, "c", sixty).Granted).To(BeFalse())
			e.clock.Step(2 * time.Second)
			Expect(ask(ctx, "c", sixty)).To(Equal(granted))
		})

		It("are refused while more tokens were used than a minute allows", func(ctx SpecContext) {
			thousand := store.PermitRequest{Tokens: 1000}
			Expect(ask(ctx, "a", thousand)).To(Equal(granted))
			give(ctx, "a", 1500)
			out := ask(ctx, "b", thousand)
			Expect(out.Granted).To(BeFalse())
			Expect(out.Wait).To(BeNumerically("~", 30*time.Second, time.Second))
			e.clock.Step(31 * time.Second)
			Expect(ask(ctx, "b", thousand)).To(Equal(granted))
		})

		It("wait five minutes at most for used tokens, also after the limit was lowered", func(ctx SpecContext) {
			Expect(ask(ctx, "a", store.PermitRequest{Tokens: 1_000_000})).To(Equal(granted))
			give(ctx, "a", 2_000_000)
			thousand := store.PermitRequest{Tokens: 1000}
			Expect(ask(ctx, "b", thousand).Wait).To(BeNumerically("~", 5*time.Minute, time.Second))
			for range 6 { // it asks again, to keep its place
				e.clock.Step(51 * time.Second)
				ask(ctx, "b", thousand)
			}
			Expect(ask(ctx, "b", thousand)).To(Equal(granted))
		})

		It("do not wait for what was used while there was no limit", func(ctx SpecContext) {
			free := store.PermitRequest{Concurrent: 100}
			for _, id := range []string{"a", "b", "c", "d", "e"} {
				Expect(ask(ctx, id, free)).To(Equal(granted))
				give(ctx, id, 1_000_000)
			}
			Expect(ask(ctx, "f", free)).To(Equal(granted))
			give(ctx, "f", 0)
			out := ask(ctx, "g", store.PermitRequest{Concurrent: 100, Requests: 60, Tokens: 1000})
			Expect(out.Wait).To(BeNumerically("<=", 1100*time.Millisecond), "what one request takes to come up")
			e.clock.Step(2 * time.Second)
			Expect(ask(ctx, "g", store.PermitRequest{Concurrent: 100, Requests: 60, Tokens: 1000})).To(Equal(granted))
		})

		It("never exceed the limit, however many callers ask at once", func(ctx SpecContext) {
			var group sync.WaitGroup
			var got atomic.Int32
			for i := range 12 {
				group.Go(func() {
					defer GinkgoRecover()
					out, err := e.store.TakePermit(ctx, store.PermitRequest{Namespace: "ns", Model: "m", ID: string(rune('a' + i)), Concurrent: 3, TTL: time.Minute})
					Expect(err).NotTo(HaveOccurred())
					if out.Granted {
						got.Add(1)
					}
				})
			}
			group.Wait()
			Expect(got.Load()).To(BeNumerically("<=", 3))
			Expect(got.Load()).To(BeNumerically(">=", 1), "the first in the queue has one")
		})
	})
}
