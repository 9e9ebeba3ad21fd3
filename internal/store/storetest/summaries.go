package storetest

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// summary returns the op that appends a summary of the messages from one index to another.
func summary(id string, from, to int) *store.AppendMessage {
	m := message("summary " + id)
	m.ID, m.Role, m.Silent = id, store.RoleSystem, true
	m.Summary = &store.Summary{From: fmt.Sprint("m", from), To: fmt.Sprint("m", to), Messages: to - from + 1, Prompt: "p"}
	return &store.AppendMessage{Message: m}
}

func describeSummaries(e *env) {
	Describe("summaries", Label("MSG-12"), func() {
		summaries := func(ctx SpecContext, id string) (out []string) {
			GinkgoHelper()
			page, err := e.store.Messages(ctx, id, allMessages)
			Expect(err).NotTo(HaveOccurred())
			for _, m := range page.Messages {
				if m.Summary != nil {
					out = append(out, m.ID)
				}
			}
			Expect(page.Total).To(Equal(int64(len(page.Messages))), "what is removed is no longer counted")
			return out
		}

		It("say what they stand for", func(ctx SpecContext) {
			id := e.said(ctx, 10)
			e.apply(ctx, id, summary("s", 1, 6))
			m, err := e.store.Message(ctx, id, "s")
			Expect(err).NotTo(HaveOccurred())
			first, err := e.store.Message(ctx, id, "m1")
			Expect(err).NotTo(HaveOccurred())
			last, err := e.store.Message(ctx, id, "m6")
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Summary).To(Equal(&store.Summary{From: "m1", To: "m6", FromSeq: first.Seq, ToSeq: last.Seq, Messages: 6, Prompt: "p"}))
			Expect(e.store.Apply(ctx, id, nil, summary("t", 1, 99))).To(MatchError(store.ErrNotFound))
			Expect(e.store.Apply(ctx, id, nil, summary("t", 6, 1))).To(MatchError(ContainSubstring("in the other order")))
			again := summary("s", 1, 6)
			e.apply(ctx, id, again)
			Expect(again.Existed).To(BeTrue())
		})

		It("go when a message that they stand for is changed or removed, and for nothing else", func(ctx SpecContext) {
			id := e.said(ctx, 20)
			e.apply(ctx, id, summary("s", 2, 6))
			e.apply(ctx, id, summary("t", 2, 12))
			text, same, failed := "other", "4", store.MessageFailed
			e.apply(ctx, id, &store.UpdateMessage{ID: "m0", Content: &text}, &store.DeleteMessage{ID: "m1"}, &store.UpdateMessage{ID: "m13", Content: &text},
				&store.DeleteMessage{ID: "m14"}, &store.UpdateMessage{ID: "m4", Metadata: map[string]any{"a": 1}}, &store.UpdateMessage{ID: "m4", Content: &same, Status: &failed})
			Expect(summaries(ctx, id)).To(Equal([]string{"s", "t"}))
			e.apply(ctx, id, &store.UpdateMessage{ID: "m7", Content: &text})
			Expect(summaries(ctx, id)).To(Equal([]string{"s"}))
			e.apply(ctx, id, &store.UpdateMessage{ID: "s", Content: &text})
			Expect(summaries(ctx, id)).To(Equal([]string{"s"}), "a summary may be corrected")
			e.apply(ctx, id, &store.DeleteMessage{ID: "m2"})
			Expect(summaries(ctx, id)).To(BeEmpty())
			events, err := e.store.Events(ctx, id, 0, 0)
			Expect(err).NotTo(HaveOccurred())
			gone := []string{}
			for _, ev := range events {
				if ev.Type == store.EventMessageDeleted {
					gone = append(gone, ev.MessageID)
				}
			}
			Expect(gone).To(Equal([]string{"m1", "m14", "t", "m2", "s"}))
		})

		It("go with a truncation before their end, and stay with one behind them", func(ctx SpecContext) {
			id := e.said(ctx, 10)
			e.apply(ctx, id, summary("s", 0, 6))
			e.apply(ctx, id, &store.AppendMessage{Message: message("more")})
			e.apply(ctx, id, &store.Truncate{MessageID: "s"})
			Expect(summaries(ctx, id)).To(Equal([]string{"s"}))
			e.apply(ctx, id, &store.Truncate{Index: 4})
			Expect(summaries(ctx, id)).To(BeEmpty())
		})

		It("are inherited by forks behind them, and each side loses only its own", func(ctx SpecContext) {
			origin := e.said(ctx, 10)
			e.apply(ctx, origin, summary("s", 0, 6))
			fork, deep := e.fork(ctx, origin, 10), ""
			Expect(summaries(ctx, e.fork(ctx, origin, 9))).To(BeEmpty())
			deep = e.fork(ctx, fork, 10)
			Expect(summaries(ctx, deep)).To(Equal([]string{"s"}))
			text := "other"
			e.apply(ctx, fork, &store.UpdateMessage{ID: "m3", Content: &text})
			Expect(summaries(ctx, fork)).To(BeEmpty())
			Expect(summaries(ctx, origin)).To(Equal([]string{"s"}))
			Expect(summaries(ctx, deep)).To(Equal([]string{"s"}))
			e.apply(ctx, origin, &store.DeleteMessage{ID: "m0"})
			Expect(summaries(ctx, origin)).To(BeEmpty())
			Expect(summaries(ctx, deep)).To(Equal([]string{"s"}))
			e.apply(ctx, deep, &store.UpdateMessage{ID: "m3", Content: &text})
			Expect(summaries(ctx, deep)).To(BeEmpty(), "also where the summary was copied to the fork")
		})
	})
}
