package storetest

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// The bounds of forks in the suites.
const (
	maxForkSources  = 40
	maxForkSegments = 200
)

func describeForkBounds(e *env) {
	Describe("a fork", Label("REL-02"), func() {
		refused := func(ctx SpecContext, f *store.Fork) {
			GinkgoHelper()
			_, created, err := e.store.CreateThread(ctx, store.Thread{ID: "refused", Namespace: "default", Agent: "a"}, f)
			Expect(err).To(MatchError(store.ErrForkSources))
			Expect(created).To(BeFalse())
		}

		It("of a fork of a fork has its messages from a bounded number of threads", func(ctx SpecContext) {
			chain := []string{e.thread(ctx, &store.AppendMessage{Message: message("0")})}
			for i := range maxForkSources {
				fork := e.thread(ctx, &store.Fork{Origin: chain[i], Newest: true})
				e.say(ctx, fork, fmt.Sprint(i+1))
				chain = append(chain, fork)
			}
			last := chain[maxForkSources]
			refused(ctx, &store.Fork{Origin: last, Newest: true})
			Expect(e.texts(ctx, last, allMessages)).To(Equal(numbers(0, maxForkSources+1)))
			Expect(e.texts(ctx, e.fork(ctx, last, maxForkSources-1), allMessages)).To(Equal(numbers(0, maxForkSources)), "at an earlier message")
			Expect(e.texts(ctx, e.fork(ctx, chain[3], 3), allMessages)).To(Equal(numbers(0, 4)), "of an earlier thread")

			again := e.fork(ctx, last, maxForkSources-1)
			for range 3 {
				again = e.fork(ctx, again, maxForkSources-1)
			}
			Expect(e.texts(ctx, again, allMessages)).To(Equal(numbers(0, maxForkSources)), "a fork that adds nothing is none of them")
		})

		It("has them in a bounded number of parts", func(ctx SpecContext) {
			fork := e.fork(ctx, e.said(ctx, maxForkSegments+2), maxForkSegments+1)
			change := func(n int) *store.UpdateMessage {
				return &store.UpdateMessage{ID: fmt.Sprint("m", n), Content: ptr("changed")}
			}
			var ops []store.Op
			for n := 1; n < maxForkSegments; n += 2 {
				ops = append(ops, change(n))
			}
			e.apply(ctx, fork, ops[1:]...)
			Expect(e.texts(ctx, e.thread(ctx, &store.Fork{Origin: fork, Newest: true}), allMessages)).To(HaveLen(maxForkSegments + 2))
			e.apply(ctx, fork, ops[0])
			refused(ctx, &store.Fork{Origin: fork, Newest: true})
			Expect(e.texts(ctx, e.fork(ctx, fork, 3), allMessages)).To(Equal([]string{"0", "changed", "2", "changed"}))
		})
	})
}
