package storetest

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// storedBytes is the query for the bytes of all messages.
const storedBytes = `SELECT CAST(coalesce(sum(coalesce(octet_length(content), 0) + coalesce(octet_length(rest), 0)), 0) AS BIGINT) FROM message`

// sums returns how many bytes of messages the store counts in a namespace, and how many there are in the database.
func (e *env) sums(ctx context.Context, namespace string) (counted, stored int64, err error) {
	if e.beside == nil {
		if e.beside, err = e.backend.SQL(); err != nil {
			return 0, 0, err
		}
		DeferCleanup(e.beside.Close)
	}
	if err := e.beside.QueryRowContext(ctx, storedBytes).Scan(&stored); err != nil {
		return 0, 0, err
	}
	use, err := e.store.QuotaUse(ctx, namespace)
	return use[store.QuotaMessageBytes], stored, err
}

func describeMessageBytes(e *env) {
	Describe("the bytes of messages", Label("K8S-11"), func() {
		const namespace = "small"
		// has checks the sum of the namespace, which has all messages of the database.
		has := func(ctx SpecContext, n int) {
			GinkgoHelper()
			counted, stored, err := e.sums(ctx, namespace)
			Expect(err).NotTo(HaveOccurred())
			Expect([]int64{counted, stored}).To(HaveEach(BeEquivalentTo(n)))
		}
		written := func(text string) *store.AppendMessage { return &store.AppendMessage{Message: message(text)} }
		fork := func(ctx SpecContext, origin string) string {
			GinkgoHelper()
			return e.threadIn(ctx, namespace, &store.Fork{Origin: origin, Newest: true})
		}

		It("count once where forks share them, to the namespace, for as long as anything reads them", func(ctx SpecContext) {
			origin := e.threadIn(ctx, namespace)
			e.apply(ctx, origin, written("0123456789"), written("0123456789"))
			named := message("0123456789")
			named.ID, named.Metadata = "named", map[string]any{"k": "v"}
			e.apply(ctx, origin, &store.AppendMessage{Message: named})
			has(ctx, 30+len(`{"metadata":{"k":"v"}}`))
			e.apply(ctx, origin, &store.DeleteMessage{ID: "named"})
			has(ctx, 20)
			one := fork(ctx, origin)
			two := fork(ctx, one)
			has(ctx, 20)
			e.apply(ctx, two, written("own"))
			has(ctx, 23)

			By("changing a message, which the forks then have for themselves")
			page, err := e.store.Messages(ctx, origin, store.MessageQuery{Order: "asc"})
			Expect(err).NotTo(HaveOccurred())
			e.apply(ctx, origin, &store.UpdateMessage{ID: page.Messages[0].ID, Content: ptr("0")})
			has(ctx, 23-9+10)

			By("removing the threads, the origin first")
			for _, id := range []string{origin, one} {
				_, err := e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			has(ctx, 23)
			_, err = e.store.PurgeThread(ctx, two)
			Expect(err).NotTo(HaveOccurred())
			has(ctx, 0)
			var rows int
			Expect(e.beside.QueryRowContext(ctx, `SELECT count(*) FROM message_usage`).Scan(&rows)).To(Succeed())
			Expect(rows).To(BeZero())
		})

		It("do not grow when messages are deleted that several forks read", func(ctx SpecContext) {
			origin := e.threadIn(ctx, namespace)
			ask := &store.Message{ID: "ask", Role: store.RoleAssistant, Content: ptr("what is it?"), ToolCalls: []store.ToolCall{{ID: "call"}}}
			result := &store.Message{Role: store.RoleTool, Content: ptr("it is this"), ToolCallID: "call"}
			summary := message("a question")
			summary.Summary = &store.Summary{From: "ask", To: "ask"}
			e.apply(ctx, origin, written("first"), &store.AppendMessage{Message: ask}, &store.AppendMessage{Message: result}, written("last"), &store.AppendMessage{Message: summary})
			var forks []string
			for range 3 {
				forks = append(forks, fork(ctx, origin))
			}
			sum, _, err := e.sums(ctx, namespace)
			Expect(err).NotTo(HaveOccurred())
			all := []string{"first", "what is it?", "it is this", "last", "a question"}
			for i, id := range append([]string{origin}, forks...) {
				has(ctx, int(sum))
				for _, later := range forks[i:] {
					Expect(e.texts(ctx, later, store.MessageQuery{Order: "asc"})).To(Equal(all))
				}
				e.apply(ctx, id, &store.DeleteMessage{ID: "ask"})
				Expect(e.texts(ctx, id, store.MessageQuery{Order: "asc"})).To(Equal([]string{"first", "last"}))
			}
			has(ctx, len("first"+"last"))
		})

		It("are counted of many messages, in one transaction and in several, and of retained data", func(ctx SpecContext) {
			text := strings.Repeat("x", 10)
			lines := func(yield func(store.ImportLine, error) bool) {
				for range 1200 {
					if !yield(store.ImportLine{Message: message(text)}, nil) {
						return
					}
				}
			}
			imported := e.threadIn(ctx, namespace, &store.ImportConversation{Lines: lines})
			has(ctx, 12000)
			e.apply(ctx, imported, &store.Truncate{Index: 99})
			has(ctx, 1000)
			e.apply(ctx, imported, written(text))
			e.apply(ctx, imported, &store.Retain{})
			has(ctx, 1010)
			_, err := e.store.PurgeThread(ctx, imported)
			Expect(err).NotTo(HaveOccurred())
			has(ctx, 0)
		})

		It("have a bound for clients, and none for what runs write", func(ctx SpecContext) {
			over := &store.NamespaceQuotaError{Namespace: namespace, Resource: store.QuotaMessageBytes, QuotaLimit: store.QuotaLimit{Hard: 50, By: `ThreadQuota "team"`}}
			e.store.LimitNamespaces(func(of string) store.Quotas {
				if of != namespace {
					return nil
				}
				return store.Quotas{store.QuotaMessageBytes: over.QuotaLimit}
			})
			var threads []string
			for range 20 {
				threads = append(threads, e.threadIn(ctx, namespace))
			}
			inject := func(id, text string) error {
				return e.store.Apply(ctx, id, nil, &store.AppendMessage{Message: message(text), Bounded: true})
			}
			Expect(atOnce(over, func(i int) error { return inject(threads[i], "0123456789") })).To(BeEquivalentTo(5))
			has(ctx, 50)
			enqueue := func(id string) error {
				op := queued("", "hello")
				op.Bounded = true
				return e.store.Apply(ctx, id, nil, op)
			}
			Expect(atOnce(over, func(i int) error { return enqueue(threads[i]) })).To(BeZero())
			e.apply(ctx, threads[0], queued("", "from a parent"))
			m := message("0123456789")
			e.apply(ctx, threads[0], &store.AppendMessage{Message: m})
			has(ctx, 60)
			change := func(text string) error {
				return e.store.Apply(ctx, threads[0], nil, &store.UpdateMessage{ID: m.ID, Content: &text, Bounded: true})
			}
			Expect(change("0123456789+")).To(MatchError(over))
			Expect(change("9876543210")).To(Succeed(), "it does not grow")
			reader := fork(ctx, threads[0])
			Expect(change("0")).To(MatchError(over), "the fork would have a copy")
			_, err := e.store.PurgeThread(ctx, reader)
			Expect(err).NotTo(HaveOccurred())
			busy := e.threadIn(ctx, namespace)
			e.apply(ctx, busy, &store.PutRun{Run: store.Run{ID: "r", ThreadID: busy, Agent: "a", Status: store.RunRunning, StartedAt: 1}})
			late := queued("", "hello")
			late.Bounded, late.IfNoRun = true, true
			Expect(e.store.Apply(ctx, busy, nil, late)).To(MatchError(over), "before the run is asked to give way")
			Expect(e.store.Apply(ctx, e.threadIn(ctx, namespace), nil, &store.ImportConversation{Lines: func(yield func(store.ImportLine, error) bool) {
				yield(store.ImportLine{Message: message("x")}, nil)
			}})).To(MatchError(over))
			has(ctx, 60)
			Expect(inject(e.threadIn(ctx, "other"), "another namespace has no bound")).To(Succeed())

			By("making room")
			for _, id := range threads {
				e.apply(ctx, id, &store.Destroy{Reason: store.DestroyedExplicit})
			}
			Expect(inject(threads[0], "0123456789")).To(Succeed())
			Expect(enqueue(threads[0])).To(Succeed())
			Expect(inject(threads[1], strings.Repeat("x", 41))).To(MatchError(over))
			Expect(enqueue(threads[1])).To(Succeed(), "it counts when a run takes it in")
		})
	})
}
