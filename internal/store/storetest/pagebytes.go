package storetest

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describePageBytes(e *env) {
	Describe("pages of messages with a limit of bytes", Label("MSG-02"), func() {
		It("hold as many as the limit allows, and one at least", func(ctx SpecContext) {
			id := e.thread(ctx)
			for i := range 60 {
				e.say(ctx, id, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 98)))
			}
			page := func(q store.MessageQuery) (first, last string, n int, more bool) {
				GinkgoHelper()
				p, err := e.store.Messages(ctx, id, q)
				Expect(err).NotTo(HaveOccurred())
				Expect(p.Total).To(BeEquivalentTo(60))
				n = len(p.Messages)
				return (*p.Messages[0].Content)[:2], (*p.Messages[n-1].Content)[:2], n, p.HasMore
			}
			expect := func(q store.MessageQuery, first, last string, n int, more bool) {
				GinkgoHelper()
				a, b, c, d := page(q)
				Expect([]any{a, b, c, d}).To(Equal([]any{first, last, n, more}))
			}
			expect(store.MessageQuery{Limit: 1000, Order: "asc", MaxBytes: 2050}, "00", "19", 20, true)
			expect(store.MessageQuery{Limit: 1000, Order: "asc", Offset: 20, MaxBytes: 2050}, "20", "39", 20, true)
			expect(store.MessageQuery{Limit: 1000, Order: "asc", Offset: 40, MaxBytes: 2050}, "40", "59", 20, false)
			expect(store.MessageQuery{Limit: 1000, MaxBytes: 2050}, "40", "59", 20, true)
			expect(store.MessageQuery{Limit: 1000, Order: "desc", MaxBytes: 2050}, "59", "40", 20, true)
			expect(store.MessageQuery{Limit: 1000, MaxBytes: 1}, "59", "59", 1, true)
			expect(store.MessageQuery{Limit: 10, MaxBytes: 1 << 20}, "50", "59", 10, true)
			expect(store.MessageQuery{Limit: 1000, MaxBytes: 1 << 20}, "00", "59", 60, false)
		})

		It("count what waits in the inbox too", Label("MSG-05"), func(ctx SpecContext) {
			const most = 208_600 // room for twenty texts, with the mark that they are queued or without
			id := e.thread(ctx)
			text := func(i int) string { return fmt.Sprintf("%02d%s", i, strings.Repeat("x", 9998)) }
			for i := range 20 {
				e.say(ctx, id, text(i))
			}
			for i := 20; i < 60; i++ {
				e.apply(ctx, id, queued(fmt.Sprint("q", i), text(i)), &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}})
			}
			expect := func(q store.MessageQuery, first, last string, n int, total int64, more bool) {
				GinkgoHelper()
				p, err := e.store.Messages(ctx, id, q)
				Expect(err).NotTo(HaveOccurred())
				Expect(p.Messages).To(HaveLen(n))
				Expect([]any{(*p.Messages[0].Content)[:2], (*p.Messages[n-1].Content)[:2], p.Total, p.HasMore}).To(Equal([]any{first, last, total, more}))
			}
			all := store.MessageQuery{IncludeQueued: true, Limit: 1000, MaxBytes: most}
			expect(all, "40", "59", 20, 60, true)
			all.Offset = 30
			expect(all, "10", "29", 20, 60, true)
			all.Order = "desc"
			expect(all, "29", "10", 20, 60, true)
			all.Order, all.Offset = "asc", 10
			expect(all, "10", "29", 20, 60, true)
			all.Offset = 40
			expect(all, "40", "59", 20, 60, false)
			only := store.MessageQuery{QueuedOnly: true, IncludeSilent: true, AllDepths: true, Order: "asc", Limit: 1000, MaxBytes: most}
			expect(only, "20", "39", 20, 40, true)
			only.Offset = 20
			expect(only, "40", "59", 20, 40, false)
			only.Offset, only.Limit = 35, 3
			expect(only, "55", "57", 3, 40, true)
		})

		It("count metadata as it is once decoded", func(ctx SpecContext) {
			id := e.thread(ctx)
			for i := range 8 {
				m := message(fmt.Sprint(i))
				var small []any
				for range 1000 {
					small = append(small, map[string]any{"a": nil})
				}
				m.Metadata = map[string]any{"small": small}
				e.apply(ctx, id, &store.AppendMessage{Message: m})
			}
			p, err := e.store.Messages(ctx, id, store.MessageQuery{MaxBytes: 1 << 20})
			Expect(err).NotTo(HaveOccurred())
			Expect(len(p.Messages)).To(BeNumerically("<", 6))
			Expect(p.HasMore).To(BeTrue())
			Expect(p.Bytes()).To(BeNumerically("~", 1<<20, 1<<19))
		})
	})
}
