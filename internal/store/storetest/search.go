package storetest

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// ranked is how many matches a search of the suites ranks.
const ranked = 20

func describeSearch(e *env) {
	Describe("a search", Label("THR-16"), func() {
		found := func(ctx SpecContext, q store.SearchQuery) []string {
			GinkgoHelper()
			hits, _, err := e.store.Search(ctx, q)
			Expect(err).NotTo(HaveOccurred())
			out := []string{}
			for _, h := range hits {
				out = append(out, *h.Message.Content)
			}
			return out
		}
		text := func(ctx SpecContext, t string) []string {
			GinkgoHelper()
			return found(ctx, store.SearchQuery{Text: t})
		}

		It("finds words, phrases and prefixes, and leaves out messages with excluded words", func(ctx SpecContext) {
			id := e.thread(ctx)
			for _, t := range []string{"The invoice was paid last week", "Last invoice, not paid; see foo-bar@example.com", "week last", "Rechnung für Ünal"} {
				e.say(ctx, id, t)
			}
			Expect(text(ctx, "INVOICE")).To(HaveLen(2))
			Expect(text(ctx, "invoice week")).To(Equal([]string{"The invoice was paid last week"}))
			Expect(text(ctx, `"last week"`)).To(Equal([]string{"The invoice was paid last week"}))
			Expect(text(ctx, `invoice -week`)).To(Equal([]string{"Last invoice, not paid; see foo-bar@example.com"}))
			Expect(text(ctx, `invoice -"last week"`)).To(Equal([]string{"Last invoice, not paid; see foo-bar@example.com"}))
			Expect(text(ctx, "inv*")).To(HaveLen(2))
			Expect(text(ctx, "inv")).To(BeEmpty())
			Expect(text(ctx, "example")).To(HaveLen(1), "words end where letters and digits end")
			Expect(text(ctx, "foo-bar")).To(HaveLen(1))
			Expect(text(ctx, "Ünal")).To(HaveLen(1))
			Expect(text(ctx, `paid" OR "week) NEAR(' ; DROP`)).To(BeEmpty(), "there is no other syntax")
			for _, nothing := range []string{"", "-week", `""`, "!!"} {
				_, _, err := e.store.Search(ctx, store.SearchQuery{Text: nothing})
				Expect(err).To(MatchError(store.ErrSearchText))
			}
		})

		It("is limited to namespaces, a thread, a role and a page", func(ctx SpecContext) {
			a, b := e.threadIn(ctx, "a"), e.threadIn(ctx, "b")
			for i := range 5 {
				e.say(ctx, a, fmt.Sprint("word ", i))
			}
			answer := message("word from b")
			answer.Role = store.RoleAssistant
			e.apply(ctx, b, &store.AppendMessage{Message: answer})
			Expect(text(ctx, "word")).To(HaveLen(6))
			Expect(found(ctx, store.SearchQuery{Text: "word", Namespaces: []string{"b"}})).To(Equal([]string{"word from b"}))
			Expect(found(ctx, store.SearchQuery{Text: "word", Namespaces: []string{}})).To(BeEmpty())
			Expect(found(ctx, store.SearchQuery{Text: "word", ThreadID: b})).To(Equal([]string{"word from b"}))
			Expect(found(ctx, store.SearchQuery{Text: "word", Role: store.RoleUser})).To(HaveLen(5))
			hits, more, err := e.store.Search(ctx, store.SearchQuery{Text: "word", Namespaces: []string{"a"}, Limit: 2, Offset: 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(hits).To(HaveLen(2))
			Expect(more).To(BeTrue())
			Expect(hits[0]).To(And(HaveField("ThreadID", a), HaveField("Namespace", "a"), HaveField("Snippet", Equal(*hits[0].Message.Content)), HaveField("Rank", BeNumerically(">", 0))))
			_, more, err = e.store.Search(ctx, store.SearchQuery{Text: "word", Namespaces: []string{"a"}, Limit: 2, Offset: 3})
			Expect(err).NotTo(HaveOccurred())
			Expect(more).To(BeFalse())
		})

		It("gives as many messages as a limit of bytes allows, and one at least", Label("K8S-12"), func(ctx SpecContext) {
			id := e.thread(ctx)
			for i := range 5 {
				e.say(ctx, id, fmt.Sprintf("word %d %s", i, strings.Repeat("x", 100<<10)))
			}
			page := func(q store.SearchQuery) (n int, more bool) {
				GinkgoHelper()
				q.Text = "word"
				hits, more, err := e.store.Search(ctx, q)
				Expect(err).NotTo(HaveOccurred())
				return len(hits), more
			}
			for _, c := range []struct {
				q    store.SearchQuery
				n    int
				more bool
			}{
				{store.SearchQuery{MaxBytes: 250 << 10}, 2, true},
				{store.SearchQuery{MaxBytes: 250 << 10, Offset: 2}, 2, true},
				{store.SearchQuery{MaxBytes: 250 << 10, Offset: 4}, 1, false},
				{store.SearchQuery{MaxBytes: 1}, 1, true},
				{store.SearchQuery{MaxBytes: 1, Offset: 4}, 1, false},
				{store.SearchQuery{MaxBytes: 1 << 20, Limit: 4}, 4, true},
				{store.SearchQuery{MaxBytes: 1 << 20}, 5, false},
			} {
				n, more := page(c.q)
				Expect([]any{n, more}).To(Equal([]any{c.n, c.more}), "%+v", c.q)
			}
		})

		It("ranks and finds the newest matches only, of what it is limited to", func(ctx SpecContext) {
			a, b := e.threadIn(ctx, "a"), e.threadIn(ctx, "b")
			const best = "word word word"
			e.say(ctx, b, best)
			e.say(ctx, a, best)
			for i := range ranked - 2 {
				e.say(ctx, a, fmt.Sprint("a word among others ", i))
			}
			all := text(ctx, "word")
			Expect(all).To(HaveLen(ranked))
			Expect(all[:2]).To(Equal([]string{best, best}), "it ranks all while there are no more")
			e.say(ctx, a, "a word among others of a later time")
			all = text(ctx, "word")
			Expect(all).To(HaveLen(ranked))
			Expect(all[:2]).To(HaveExactElements(best, HavePrefix("a word")), "the first one is the oldest")
			e.say(ctx, a, "a word among others of a still later time")
			Expect(text(ctx, "word")).To(And(HaveLen(ranked), HaveEach(HavePrefix("a word"))))

			for _, q := range []store.SearchQuery{{ThreadID: b}, {Namespaces: []string{"b"}}} {
				q.Text = "word"
				Expect(found(ctx, q)).To(Equal([]string{best}), "%+v", q)
			}
			Expect(found(ctx, store.SearchQuery{Text: "word", ThreadID: a})).To(HaveLen(ranked))
			page := store.SearchQuery{Text: "word", Limit: 15, Offset: 15}
			hits, more, err := e.store.Search(ctx, page)
			Expect(err).NotTo(HaveOccurred())
			Expect(hits).To(HaveLen(ranked - 15))
			Expect(more).To(BeFalse())
			page.Offset = 0
			_, more, err = e.store.Search(ctx, page)
			Expect(err).NotTo(HaveOccurred())
			Expect(more).To(BeTrue())
		})

		It("reflects edits and deletions of indexed messages", func(ctx SpecContext) {
			id := e.thread(ctx)
			m := e.say(ctx, id, "apples")
			last := e.say(ctx, id, "pears")
			Expect(text(ctx, "apples")).To(HaveLen(1))
			e.apply(ctx, id, &store.UpdateMessage{ID: m.ID, Content: ptr("plums")})
			Expect(text(ctx, "apples")).To(BeEmpty())
			Expect(text(ctx, "plums")).To(HaveLen(1))
			e.apply(ctx, id, &store.DeleteMessage{ID: last.ID})
			Expect(text(ctx, "pears")).To(BeEmpty())
			e.say(ctx, id, "grapes")
			Expect(text(ctx, "grapes")).To(HaveLen(1))
			e.apply(ctx, id, &store.Truncate{Index: -1})
			e.say(ctx, id, "lemons")
			Expect(text(ctx, "grapes")).To(BeEmpty())
			Expect(text(ctx, "lemons")).To(HaveLen(1))
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(text(ctx, "lemons")).To(BeEmpty())
		})

		It("finds new messages in a database from which all others were removed", func(ctx SpecContext) {
			// SQLite reuses the keys of the newest removed messages. Keys 1 to 3 are removed before the first search,
			// so the index never saw them; keys 4 to 6 are removed afterwards.
			first, second := e.said(ctx, 3), e.said(ctx, 3)
			_, err := e.store.PurgeThread(ctx, first)
			Expect(err).NotTo(HaveOccurred())
			Expect(text(ctx, "absent")).To(BeEmpty())
			third := e.said(ctx, 3) // keys 7 to 9: the index never sees them
			for _, id := range []string{second, third} {
				_, err = e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			id := e.thread(ctx)
			e.say(ctx, id, "xylophones")
			e.say(ctx, id, "more xylophones")
			Expect(text(ctx, "xylophones")).To(HaveLen(2))
		})

		It("finds a message that has the key of a removed one, once", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.say(ctx, id, "kept")
			old := e.say(ctx, id, "cellos")
			Expect(text(ctx, "cellos")).To(HaveLen(1))
			e.apply(ctx, id, &store.DeleteMessage{ID: old.ID})
			e.say(ctx, id, "violas")
			e.say(ctx, id, "more violas")
			Expect(text(ctx, "violas")).To(HaveLen(2))
			Expect(text(ctx, "cellos")).To(BeEmpty())
			Expect(text(ctx, "kept")).To(HaveLen(1))
		})

		It("finds a message that a fork inherits once, under the origin", Label("REL-02"), func(ctx SpecContext) {
			origin := e.said(ctx, 3)
			e.say(ctx, origin, "treasure")
			fork := e.fork(ctx, origin, 3)
			hits, _, err := e.store.Search(ctx, store.SearchQuery{Text: "treasure"})
			Expect(err).NotTo(HaveOccurred())
			Expect(hits).To(ConsistOf(HaveField("ThreadID", origin)))
			e.say(ctx, fork, "my treasure")
			Expect(text(ctx, "treasure")).To(HaveLen(2))
			_, err = e.store.PurgeThread(ctx, origin)
			Expect(err).NotTo(HaveOccurred())
			Expect(text(ctx, "treasure")).To(Equal([]string{"my treasure"}), "the remnant of a purged thread is not found")
		})
	})
}
