package gateway

import (
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A repeat of a message", Label("MSG-10"), func() {
	It("reads the log from the first one on, however long the conversation was", func(ctx SpecContext) {
		st, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = st.Close() }()
		_, _, err = st.CreateThread(ctx, store.Thread{ID: "t", Namespace: "ns", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		conversation, err := thread.NewService(thread.Options{Store: st}).Open(ctx, "t")
		Expect(err).NotTo(HaveOccurred())
		for i := range 100 {
			text := fmt.Sprint(i)
			_, err := conversation.Inject(ctx, thread.NewMessage{Content: &text})
			Expect(err).NotTo(HaveOccurred())
		}
		text := "go"
		said := thread.NewMessage{Content: &text, IdempotencyKey: "k"}
		first := func() (*store.Event, *store.Message) {
			GinkgoHelper()
			row, err := st.Thread(ctx, "t")
			Expect(err).NotTo(HaveOccurred())
			sent, err := conversation.Queue(ctx, said)
			Expect(err).NotTo(HaveOccurred())
			events, err := st.Events(ctx, "t", answerAfter(row, sent), 1)
			Expect(err).NotTo(HaveOccurred())
			Expect(events).To(HaveLen(1))
			return &events[0], sent
		}
		e, sent := first()
		Expect(e).To(And(HaveField("Type", store.EventMessageQueued), HaveField("MessageID", sent.ID)))
		items, err := st.Inbox(ctx, "t")
		Expect(err).NotTo(HaveOccurred())
		var m store.Message
		Expect(json.Unmarshal(items[0].Payload, &m)).To(Succeed())
		m.RunID = "run"
		Expect(conversation.Apply(ctx, &store.AppendMessage{Message: &m}, &store.Dequeue{Seqs: []int64{items[0].Seq}})).To(Succeed())
		again, _ := first()
		Expect(again).To(And(HaveField("Type", store.EventMessageCreated), HaveField("MessageID", sent.ID), HaveField("RunID", "run")))
	})
})
