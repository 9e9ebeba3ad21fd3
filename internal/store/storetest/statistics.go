package storetest

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeStatistics(e *env) {
	Describe("Statistics", Label("K8S-06"), func() {
		It("say how large the store is and since when the oldest inbox item waits", func(ctx SpecContext) {
			id := e.thread(ctx)
			before, err := e.store.Statistics(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(before.Bytes).To(BeNumerically(">", 0))
			Expect(before.OldestItem).To(BeNumerically("<=", before.Now))
			e.apply(ctx, id,
				&store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: json.RawMessage(`{"name":"t"}`), CreatedAt: 5}},
				&store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: json.RawMessage(`{"name":"t"}`), CreatedAt: 9}})
			after, err := e.store.Statistics(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(after.InboxItems).To(Equal(before.InboxItems + 2))
			Expect(after.OldestItem).To(Equal(int64(5)))
			rows, contents := e.count(ctx)
			Expect(rows).To(And(HaveKey("message"), HaveKey("inbox"), HaveKey("thread")))
			e.apply(ctx, id, putFile("/a", 201), copyFile("/b", 201), putFile("/c", 202))
			_, then := e.count(ctx)
			Expect(then).To(Equal(contents+201+202), "what two files share counts once")
			e.apply(ctx, id, &store.RemoveFile{Path: "/c"})
			_, then = e.count(ctx)
			Expect(then).To(Equal(contents + 201))
		})
	})
}

// count counts what grows with use.
func (e *env) count(ctx context.Context) (rows map[string]int64, contents int64) {
	GinkgoHelper()
	c := e.store.Count()
	for done := false; !done; {
		var err error
		done, err = c.Step(ctx)
		Expect(err).NotTo(HaveOccurred())
	}
	return c.Rows(), c.ContentsBytes()
}
