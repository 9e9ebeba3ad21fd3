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
	})
}
