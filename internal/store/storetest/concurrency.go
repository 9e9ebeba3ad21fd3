package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// together runs n functions at the same time and waits for all.
func together(n int, fn func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func describeConcurrency(e *env) {
	Describe("concurrent callers", func() {
		It("write to their own threads and to a shared one without losing a write", func(ctx SpecContext) {
			const writers, each = 16, 20
			shared := e.thread(ctx)
			var own []string
			for range writers {
				own = append(own, e.thread(ctx))
			}
			Expect(together(writers, func(i int) error {
				for n := range each {
					m := message(fmt.Sprint(n))
					m.ID = fmt.Sprintf("%d-%d", i, n)
					if err := e.store.Apply(ctx, own[i], nil, &store.AppendMessage{Message: m}); err != nil {
						return err
					}
					if err := e.store.Apply(ctx, shared, nil, queued(m.ID, m.ID)); err != nil {
						return err
					}
				}
				return nil
			})).To(Succeed())
			for _, id := range own {
				page, err := e.store.Messages(ctx, id, store.MessageQuery{Order: "asc", Limit: each + 1})
				Expect(err).NotTo(HaveOccurred())
				Expect(page.Messages).To(HaveLen(each))
				for n, m := range page.Messages {
					Expect(*m.Content).To(Equal(fmt.Sprint(n)))
				}
				Expect(e.info(ctx, id).Version).To(Equal(int64(each)))
			}
			Expect(e.inbox(ctx, shared)).To(HaveLen(writers * each))
			t := e.info(ctx, shared)
			Expect(t.Queued).To(Equal(int64(writers * each)))
			Expect(t.Version).To(Equal(int64(writers * each)))
		})

		It("fail alone: a refused transaction does not harm those that share its commit", func(ctx SpecContext) {
			const callers = 32
			id := e.thread(ctx)
			var refused atomic.Int64
			Expect(together(callers, func(i int) error {
				for n := range 10 {
					m := message(fmt.Sprintf("%d-%d", i, n))
					m.ID = *m.Content
					ops := []store.Op{&store.AppendMessage{Message: m}}
					if i%2 == 1 {
						ops = append(ops, &store.RemoveFile{Path: "/none"})
					}
					err := e.store.Apply(ctx, id, nil, ops...)
					if i%2 == 1 && errors.Is(err, store.ErrNotFound) {
						refused.Add(1)
						err = nil
					}
					if err != nil {
						return err
					}
				}
				return nil
			})).To(Succeed())
			Expect(refused.Load()).To(Equal(int64(callers / 2 * 10)))
			t := e.info(ctx, id)
			Expect(t.Messages).To(Equal(int64(callers / 2 * 10)))
			Expect(e.texts(ctx, id, store.MessageQuery{Limit: 1000})).To(HaveLen(callers / 2 * 10))
			for i := range callers {
				for n := range 10 {
					_, err := e.store.Message(ctx, id, fmt.Sprintf("%d-%d", i, n))
					if i%2 == 1 {
						Expect(err).To(MatchError(store.ErrNotFound))
					} else {
						Expect(err).NotTo(HaveOccurred())
					}
				}
			}
		})

		It("create the same thread, and one succeeds", Label("THR-03"), func(ctx SpecContext) {
			var made atomic.Int64
			Expect(together(16, func(int) error {
				_, created, err := e.store.CreateThread(ctx, store.Thread{ID: "same", Namespace: "n", Agent: "a"}, queued("m", "first"))
				if created {
					made.Add(1)
				}
				return err
			})).To(Succeed())
			Expect(made.Load()).To(Equal(int64(1)))
			Expect(e.inbox(ctx, "same")).To(HaveLen(1))
		})

		It("acquire the same thread, and one succeeds", Label("THR-12"), func(ctx SpecContext) {
			id := e.thread(ctx)
			var got atomic.Int64
			Expect(together(16, func(i int) error {
				_, err := e.store.Acquire(ctx, id, fmt.Sprint("owner-", i), time.Minute)
				if err == nil {
					got.Add(1)
				}
				if errors.Is(err, store.ErrLeaseHeld) {
					return nil
				}
				return err
			})).To(Succeed())
			Expect(got.Load()).To(Equal(int64(1)))
		})

		It("write as holders that take the thread from each other, and no stale write is stored", Label("THR-12"), func(ctx SpecContext) {
			id := e.thread(ctx)
			var mu sync.Mutex
			landed := map[int64]int{} // epoch → acknowledged writes
			Expect(together(8, func(i int) error {
				for range 10 {
					f, err := e.store.Acquire(ctx, id, fmt.Sprint("owner-", i), time.Microsecond) // expires at once
					if errors.Is(err, store.ErrLeaseHeld) {
						e.clock.Step(time.Millisecond)
						continue
					}
					if err != nil {
						return err
					}
					e.clock.Step(time.Millisecond)
					err = e.store.Apply(ctx, id, f, &store.AppendMessage{Message: message(fmt.Sprint(f.Epoch))})
					if err == nil {
						mu.Lock()
						landed[f.Epoch]++
						mu.Unlock()
					} else if !errors.Is(err, store.ErrFenced) {
						return err
					}
				}
				return nil
			})).To(Succeed())
			page, err := e.store.Messages(ctx, id, store.MessageQuery{Order: "asc", Limit: 1000})
			Expect(err).NotTo(HaveOccurred())
			last := int64(0)
			stored := map[int64]int{}
			for _, m := range page.Messages {
				var epoch int64
				_, err := fmt.Sscan(*m.Content, &epoch)
				Expect(err).NotTo(HaveOccurred())
				Expect(epoch).To(BeNumerically(">=", last), "a later holder had written before")
				last = epoch
				stored[epoch]++
			}
			Expect(stored).To(Equal(landed))
			Expect(stored).NotTo(BeEmpty())
		})

		It("claim firings, and each firing goes to one of them", Label("EFF-04"), func(ctx SpecContext) {
			const firings = 60
			for i := range firings {
				_, err := e.store.RecordFiring(ctx, store.Firing{EffectID: fmt.Sprint(i), Due: 1})
				Expect(err).NotTo(HaveOccurred())
			}
			var mu sync.Mutex
			times := map[string]int{}
			Expect(together(8, func(i int) error {
				for {
					claimed, err := e.store.ClaimFirings(ctx, fmt.Sprint(i), time.Minute, map[string]int{"": 3})
					if err != nil || len(claimed) == 0 {
						return err
					}
					mu.Lock()
					for _, f := range claimed {
						times[f.EffectID]++
					}
					mu.Unlock()
				}
			})).To(Succeed())
			Expect(times).To(HaveLen(firings))
			Expect(times).To(HaveEach(1))
		})

		It("read consistent snapshots while others write", Label("MSG-05"), func(ctx SpecContext) {
			id := e.thread(ctx)
			writing, done := context.WithCancel(ctx)
			defer done()
			var wg sync.WaitGroup
			wg.Go(func() { // as a user who sends and a run that takes
				defer GinkgoRecover()
				defer done()
				for n := range 300 {
					op := queued(fmt.Sprint(n), fmt.Sprint(n))
					e.apply(ctx, id, op)
					m := message(fmt.Sprint(n))
					m.ID = fmt.Sprint(n)
					e.apply(ctx, id, &store.AppendMessage{Message: m}, &store.Dequeue{Seqs: []int64{op.Seq}})
				}
			})
			var last int64
			for writing.Err() == nil {
				page, err := e.store.Messages(ctx, id, store.MessageQuery{Limit: 3, IncludeQueued: true})
				Expect(err).NotTo(HaveOccurred())
				Expect(page.Total).To(BeNumerically(">=", last), "a message was there and is gone")
				last = page.Total
				want := []string{}
				for n := max(last-3, 0); n < last; n++ {
					want = append(want, fmt.Sprint(n))
				}
				Expect(contents(page.Messages)).To(Equal(want))
			}
			wg.Wait()
		})

		It("give up when their context ends before their turn", func(ctx SpecContext) {
			id := e.thread(ctx)
			over, cancel := context.WithCancel(ctx)
			cancel()
			Expect(e.store.Apply(over, id, nil, &store.AppendMessage{Message: message("x")})).To(MatchError(context.Canceled))
			_, err := e.store.Thread(over, id)
			Expect(err).To(MatchError(context.Canceled))
			Expect(e.info(ctx, id).Messages).To(BeZero())
		})
	})
}
