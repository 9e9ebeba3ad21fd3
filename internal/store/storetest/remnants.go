package storetest

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// remnants returns how many threads have left messages for their forks, and how many messages.
func (e *env) remnants(ctx context.Context) (threads, messages int) {
	GinkgoHelper()
	db, err := e.backend.SQL()
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(db.Close()).To(Succeed()) }()
	Expect(db.QueryRowContext(ctx, `SELECT count(*) FROM thread WHERE namespace = ''`).Scan(&threads)).To(Succeed())
	Expect(db.QueryRowContext(ctx, `SELECT count(*) FROM message m JOIN thread t ON t.key = m.thread WHERE t.namespace = ''`).Scan(&messages)).To(Succeed())
	return threads, messages
}

func describeRemnants(e *env) {
	Describe("messages that are kept for forks", Label("REL-02", "THR-09"), func() {
		purge := func(ctx SpecContext, id string) {
			GinkgoHelper()
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
		}
		left := func(ctx SpecContext, threads, messages int) {
			GinkgoHelper()
			t, m := e.remnants(ctx)
			Expect([]int{t, m}).To(Equal([]int{threads, messages}))
		}
		// orphaned creates a fork with n messages whose origin is purged.
		orphaned := func(ctx SpecContext, n int) string {
			GinkgoHelper()
			origin := e.said(ctx, n)
			fork := e.fork(ctx, origin, int64(n-1))
			purge(ctx, origin)
			return fork
		}

		// interrupted applies an operation, and is interrupted before it removes what the operation has freed.
		interrupted := func(ctx SpecContext, id string, op store.Op) {
			GinkgoHelper()
			cut, cancel := context.WithCancel(ctx)
			stop := e.store.Subscribe(func(n store.Notification) {
				if !n.Remote {
					cancel()
				}
			})
			Expect(e.store.Apply(cut, id, nil, op)).To(Succeed())
			stop()
		}

		It("go with the purge of the last fork that reads them, which looks at no others", func(ctx SpecContext) {
			read, cut, last := orphaned(ctx, 3), orphaned(ctx, 4), orphaned(ctx, 5)
			interrupted(ctx, cut, &store.Truncate{Index: -1})
			left(ctx, 3, 12)
			purge(ctx, e.said(ctx, 1))
			left(ctx, 3, 12)
			purge(ctx, last)
			left(ctx, 2, 7)
			next, removed, err := e.store.SweepRemnants(ctx, 0, 10)
			Expect(err).NotTo(HaveOccurred())
			Expect(next).To(BeZero(), "there are no more")
			Expect(removed).To(Equal(1), "what the interrupted truncation has freed")
			left(ctx, 1, 3)
			Expect(e.texts(ctx, read, allMessages)).To(Equal(numbers(0, 3)))
		})

		first := func(ctx SpecContext, id string) string {
			GinkgoHelper()
			page, err := e.store.Messages(ctx, id, allMessages)
			Expect(err).NotTo(HaveOccurred())
			return page.Messages[0].ID
		}

		DescribeTable("go with a change of the last fork that reads them", func(ctx SpecContext, change func(SpecContext, string)) {
			origin := e.said(ctx, 1)
			forks := []string{e.fork(ctx, origin, 0), e.fork(ctx, origin, 0)}
			purge(ctx, origin)
			change(ctx, forks[0])
			left(ctx, 1, 1)
			Expect(e.texts(ctx, forks[1], allMessages)).To(Equal(numbers(0, 1)))
			change(ctx, forks[1])
			left(ctx, 0, 0)
		},
			Entry("that truncates it", func(ctx SpecContext, id string) { e.apply(ctx, id, &store.Truncate{Index: -1}) }),
			Entry("that destroys it", func(ctx SpecContext, id string) { e.apply(ctx, id, &store.Destroy{Reason: store.DestroyedExplicit}) }),
			Entry("that edits the message", func(ctx SpecContext, id string) {
				e.apply(ctx, id, &store.UpdateMessage{ID: first(ctx, id), Content: new("edited")})
			}),
			Entry("that deletes the message", func(ctx SpecContext, id string) {
				e.apply(ctx, id, &store.DeleteMessage{ID: first(ctx, id)})
			}))

		DescribeTable("go with the last of a chain of forks, in whatever order it is purged", func(ctx SpecContext, order ...int) {
			chain := []string{e.said(ctx, 2)}
			for i := range 3 {
				fork := e.fork(ctx, chain[i], int64(2*i+1))
				for j := range 2 {
					e.apply(ctx, fork, &store.AppendMessage{Message: named(fmt.Sprint("f", i, "-", j), fmt.Sprint(2*i+2+j))})
				}
				chain = append(chain, fork)
			}
			for n, i := range order {
				purge(ctx, chain[i])
				for _, j := range order[n+1:] {
					Expect(e.texts(ctx, chain[j], allMessages)).To(Equal(numbers(0, 2*j+2)), "of fork %d after the purge of %d", j, i)
				}
			}
			left(ctx, 0, 0)
		},
			Entry("from the first", 0, 1, 2, 3), Entry("from the last", 3, 2, 1, 0), Entry("from the middle", 1, 2, 0, 3),
			Entry("the last before the middle", 0, 1, 3, 2), Entry("the ends first", 0, 3, 1, 2))

		It("are swept page by page, each page after the one before", func(ctx SpecContext) {
			var forks []string
			for i := range 5 {
				forks = append(forks, orphaned(ctx, i+1))
			}
			for _, i := range []int{0, 3, 4} {
				interrupted(ctx, forks[i], &store.Destroy{Reason: store.DestroyedExplicit})
			}
			left(ctx, 5, 15)
			var pages []int
			for last, more := int64(0), true; more; more = last != 0 {
				after := last
				var n int
				var err error
				last, n, err = e.store.SweepRemnants(ctx, after, 2)
				Expect(err).NotTo(HaveOccurred())
				Expect(last).To(Or(BeZero(), BeNumerically(">", after)))
				pages = append(pages, n)
			}
			Expect(pages).To(Equal([]int{1, 1, 1}))
			left(ctx, 2, 5)
			for _, i := range []int{1, 2} {
				Expect(e.texts(ctx, forks[i], allMessages)).To(Equal(numbers(0, i+1)))
			}
		})

		It("stay while a removal that was interrupted has them", func(ctx SpecContext) {
			fork := orphaned(ctx, many)
			interrupted(ctx, fork, &store.Truncate{Index: 1})
			_, removed, err := e.store.SweepRemnants(ctx, 0, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(removed).To(BeZero())
			Expect(e.store.FinishRemovals(ctx, e.now()+1, 0)).To(Equal(1))
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, 2)))
			purge(ctx, fork)
			left(ctx, 0, 0)
		})
	})
}
