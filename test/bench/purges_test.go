package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// What deletions do to those who write meanwhile: a purge is a transaction of the same writer.
var _ = Describe("Purges", Label("store"), func() {
	for _, db := range databases {
		It("go on beside appends on "+db.name, func(ctx SpecContext) {
			const rounds, writers, threads, messages = 5, 16, 60, 20
			s := db.open(ctx)
			many(ctx, s, "stay", writers)
			var alone, beside, purges []time.Duration
			for round := range rounds {
				names := fmt.Sprint("go-", round)
				many(ctx, s, names, threads)
				for i := range threads {
					appendTo(ctx, s, threadID(names, i), messages)
				}
				took, end := appending(ctx, s, writers, 400)
				end()
				alone = append(alone, took()...)
				took, end = appending(ctx, s, writers, 0)
				for i := range threads {
					purges = append(purges, timed(func() {
						_, err := s.PurgeThread(ctx, threadID(names, i))
						Expect(err).NotTo(HaveOccurred())
					}))
				}
				end()
				beside = append(beside, took()...)
			}
			figure("appends beside purges, "+db.name, "%s; p50 %.2f and p99 %.2f times those alone", spread(beside), times(beside, alone),
				float64(quantile(beside, .99))/float64(quantile(alone, .99)))
			figure("  appends alone", "%s", spread(alone))
			figure("  purges", "%s; threads of %d messages, one after the other", spread(purges), messages)
		}, NodeTimeout(5*time.Minute))
	}
})

// appending has writers append to their threads, each so many times, or with 0 until end is called. end waits for them, and took then
// returns how long each append took.
func appending(ctx context.Context, s store.Store, writers, each int) (took func() []time.Duration, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	all := make([][]time.Duration, writers)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			defer GinkgoRecover()
			for n := 0; ctx.Err() == nil && (each == 0 || n < each); n++ {
				all[i] = append(all[i], timed(func() { appendTo(context.WithoutCancel(ctx), s, threadID("stay", i), 1) }))
			}
		})
	}
	took = func() (list []time.Duration) {
		for _, one := range all {
			list = append(list, one...)
		}
		return list
	}
	return took, func() {
		if each == 0 {
			cancel()
		}
		group.Wait()
		cancel()
	}
}

// appendTo appends n messages to a thread, one after the other.
func appendTo(ctx context.Context, s store.Store, id string, n int) {
	GinkgoHelper()
	content := strings.Repeat("x", contentBytes)
	for range n {
		Expect(s.Apply(ctx, id, nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &content}})).To(Succeed())
	}
}
