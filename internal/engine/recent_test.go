package engine_test

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// readings counts how often messages are read.
type readings struct {
	store.Store
	n atomic.Int64
}

func (r *readings) Messages(ctx context.Context, id string, q store.MessageQuery) (*store.MessagePage, error) {
	r.n.Add(1)
	return r.Store.Messages(ctx, id, q)
}

var _ = Describe("A conversation between two runs", Label("RUN-01"), func() {
	It("is kept in memory while nobody else changes it, and read again whatever somebody has changed", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("a")
		m := listening(w, says("said"))
		counted := &readings{Store: w.Store}
		start(w, func(o *engine.Options) { o.Threads = w.Over(counted) })
		id := makeThread(ctx, w, "a")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		turn := func(text string) []string {
			GinkgoHelper()
			send(ctx, w, id, text)
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			all := m.requests()
			return view(all[len(all)-1])
		}

		Expect(turn("one")).To(Equal([]string{"user one"}))
		before := counted.n.Load()
		Expect(turn("two")).To(Equal([]string{"user one", "assistant said", "user two"}))
		Expect(counted.n.Load()).To(Equal(before), "what it has said itself it knows")

		messages, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		edited := "ONE"
		_, err = st.UpdateMessage(ctx, messages[0].ID, thread.MessageUpdate{Content: &edited})
		Expect(err).NotTo(HaveOccurred())
		Expect(turn("three")).To(Equal([]string{"user ONE", "assistant said", "user two", "assistant said", "user three"}))

		Expect(st.DeleteMessage(ctx, messages[1].ID)).To(BeTrue())
		put := "put there"
		_, err = st.Inject(ctx, thread.NewMessage{Role: store.RoleUser, Content: &put})
		Expect(err).NotTo(HaveOccurred())
		Expect(turn("four")).To(Equal([]string{"user ONE", "user two", "assistant said", "user three", "assistant said", "user put there", "user four"}))

		Expect(w.Store.Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit})).To(Succeed())
		Expect(turn("five")).To(Equal([]string{"user five"}))
	})
})
