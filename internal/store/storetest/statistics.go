package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

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

		It("leave out what no replica may take: items of threads that are parked, retained or being deleted, and delayed ones", func(ctx SpecContext) {
			said := func(at int64) *store.Enqueue {
				op := queued(fmt.Sprint("m", at), "hi")
				op.Item.CreatedAt = at
				return op
			}
			waits := func(items, oldest int64) {
				GinkgoHelper()
				found, err := e.store.Statistics(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect([]int64{found.InboxItems, found.OldestItem}).To(Equal([]int64{items, oldest}))
			}
			waits(0, 0)
			e.thread(ctx, said(5))
			waits(1, 5)

			parked, retained, deleted := e.thread(ctx, said(4)), e.thread(ctx, said(3)), e.thread(ctx, said(2))
			waits(4, 2)
			e.apply(ctx, parked, &store.Park{})
			e.apply(ctx, retained, &store.Retain{})
			Expect(e.store.MarkDeleted(ctx, deleted, deleted)).To(Succeed())
			waits(1, 5)
			delayed := said(1)
			id := e.thread(ctx, delayed)
			e.apply(ctx, id, &store.Delay{Seq: delayed.Seq, Until: e.now() + time.Hour.Microseconds()})
			waits(1, 5)

			e.apply(ctx, parked, &store.Continue{})
			waits(2, 4)
			e.apply(ctx, retained, &store.Adopt{ObjectUID: "next", Name: "t", Agent: "a"})
			waits(3, 3)
			e.apply(ctx, deleted, &store.Retain{})
			waits(3, 3)
		})

		It("count what waits behind a run, whether that is in progress or waits itself", func(ctx SpecContext) {
			for i, status := range []store.RunStatus{store.RunRunning, store.RunWaiting} {
				at := int64(5 - i)
				op := queued("m", "hi")
				op.Item.CreatedAt = at
				id := e.thread(ctx, &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: status}}, op)
				if status == store.RunRunning {
					_, err := e.store.Acquire(ctx, id, "me", time.Minute)
					Expect(err).NotTo(HaveOccurred())
				}
				found, err := e.store.Statistics(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect([]int64{found.InboxItems, found.OldestItem}).To(Equal([]int64{int64(i) + 1, at}), string(status))
			}
		})

		It("count calls of hooks, but not for the age: that of after_thread_created waits for as long as there is no agent", func(ctx SpecContext) {
			hook := &store.Enqueue{Item: store.InboxItem{Kind: store.InboxHook, Payload: json.RawMessage(`{"hook":"after_thread_created"}`), CreatedAt: 5}}
			id := e.thread(ctx, hook)
			found, err := e.store.Statistics(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect([]int64{found.InboxItems, found.OldestItem}).To(Equal([]int64{1, 0}))
			message := queued("m", "hi")
			message.Item.CreatedAt = 7
			e.apply(ctx, id, message)
			found, err = e.store.Statistics(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect([]int64{found.InboxItems, found.OldestItem}).To(Equal([]int64{2, 7}), "a message to such a thread waits")
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
