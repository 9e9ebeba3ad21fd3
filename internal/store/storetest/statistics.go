package storetest

import (
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
			rows, err := e.store.TableRows(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(rows).To(And(HaveKey("message"), HaveKey("inbox"), HaveKey("thread")))
			contents, err := e.store.ContentsBytes(ctx)
			Expect(err).NotTo(HaveOccurred())
			e.apply(ctx, id, putFile("/a", 201), copyFile("/b", 201), putFile("/c", 202))
			Expect(e.store.ContentsBytes(ctx)).To(Equal(contents+201+202), "what two files share counts once")
			e.apply(ctx, id, &store.RemoveFile{Path: "/c"})
			Expect(e.store.ContentsBytes(ctx)).To(Equal(contents + 201))
		})
	})
}
