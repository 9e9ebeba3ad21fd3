package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// many is more messages than the suites remove in one transaction.
const many = 50

func describeRemovals(e *env) {
	Describe("removing more messages than one transaction does", Label("THR-06", "MSG-11"), func() {
		// interrupted applies ops and stops after their first commit, as a crash would.
		interrupted := func(ctx SpecContext, id string, ops ...store.Op) {
			GinkgoHelper()
			cut, cancel := context.WithCancel(ctx)
			stop := e.store.Subscribe(func(n store.Notification) {
				if !n.Remote {
					cancel()
				}
			})
			defer stop()
			Expect(e.store.Apply(cut, id, nil, ops...)).To(Succeed())
		}
		finish := func(ctx SpecContext) int {
			GinkgoHelper()
			n, err := e.store.FinishRemovals(ctx, e.now()+1, 0)
			Expect(err).NotTo(HaveOccurred())
			return n
		}
		ids := func(from, to int) (ids []string) {
			for i := from; i < to; i++ {
				ids = append(ids, fmt.Sprint("m", i))
			}
			return ids
		}
		ofType := func(events []store.Event, kind string) (ids []string) {
			for _, ev := range events {
				if ev.Type == kind {
					ids = append(ids, ev.MessageID)
				}
			}
			return ids
		}

		It("shows none of them after the first, whatever is left, and finishes after a crash", Label("LOG-03"), func(ctx SpecContext) {
			id := e.said(ctx, many)
			e.apply(ctx, id, &store.PutEmbedding{MessageID: "m3", Content: "3", Agent: "a", Space: "s", Vector: []float32{1, 0}})
			e.apply(ctx, id, &store.UpdateMessage{ID: "m4", Metadata: map[string]any{"k": "v"}})
			seen := e.info(ctx, id).LastSeq
			interrupted(ctx, id, &store.Destroy{Reason: store.DestroyedExplicit})
			e.reopen()

			Expect(e.info(ctx, id)).To(HaveValue(And(HaveField("Messages", BeZero()), HaveField("DestroyedReason", "explicit"))))
			for _, q := range []store.MessageQuery{{}, {Order: "asc"}, {AfterSeq: 1}, {AllDepths: true, IncludeSilent: true}} {
				page, err := e.store.Messages(ctx, id, q)
				Expect(err).NotTo(HaveOccurred())
				Expect(*page).To(And(HaveField("Messages", BeEmpty()), HaveField("Total", BeZero()), HaveField("HasMore", BeFalse())))
			}
			_, err := e.store.Message(ctx, id, "m3")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.MessageIndex(ctx, id, "m3")
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.store.RunMessages(ctx, id, "")).To(BeEmpty())
			hits, _, err := e.store.Search(ctx, store.SearchQuery{Text: "3"})
			Expect(err).NotTo(HaveOccurred())
			Expect(hits).To(BeEmpty())
			Expect(e.store.Nearest(ctx, store.NearestQuery{Namespace: "default", Agent: "a", Space: "s", Vector: []float32{1, 0}})).To(BeEmpty())
			for _, ev := range e.events(ctx, id) {
				Expect(ev.Data).To(BeNil(), "event %d %s", ev.Seq, ev.Type)
				Expect(ev.Seq).To(BeNumerically("<=", seen), "the rest of the log is still to be written")
			}

			Expect(finish(ctx)).To(Equal(1))
			Expect(finish(ctx)).To(BeZero())
			events := e.events(ctx, id)
			for i, ev := range events {
				Expect(ev.Seq).To(Equal(int64(i+1)), "the log has no gaps")
			}
			Expect(ofType(events, store.EventMessageCreated)).To(Equal(ids(0, many)))
			Expect(ofType(events, store.EventMessageDeleted)).To(Equal(ids(0, many)))
			last := events[len(events)-1]
			Expect(last.Type).To(Equal(store.EventDestroyed))
			Expect(last.Data).To(MatchJSON(fmt.Sprintf(`{"reason":"explicit","messages":%d}`, many)))
		})

		It("keeps what comes before the cut and what the same transaction adds", func(ctx SpecContext) {
			id := e.said(ctx, many)
			fork := e.fork(ctx, id, many-5)
			interrupted(ctx, id, &store.Truncate{Index: 9}, &store.AppendMessage{Message: named("new", "new")})
			check := func(total int64, texts ...string) {
				GinkgoHelper()
				Expect(e.info(ctx, id).Messages).To(Equal(total))
				Expect(e.texts(ctx, id, store.MessageQuery{Limit: 100})).To(Equal(texts))
				Expect(e.texts(ctx, id, store.MessageQuery{Limit: 2})).To(Equal(texts[len(texts)-2:]))
				Expect(e.texts(ctx, id, store.MessageQuery{Order: "asc", Limit: 3, Offset: 8})).To(Equal(texts[8:min(11, len(texts))]))
				Expect(e.texts(ctx, id, store.MessageQuery{AfterSeq: 9, Limit: 50})).To(Equal(texts[9:]))
				at, err := e.store.MessageIndex(ctx, id, "new")
				Expect(err).NotTo(HaveOccurred())
				Expect(at).To(Equal(int64(10)))
			}
			check(11, append(numbers(0, 10), "new")...)
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, many-4)))

			e.say(ctx, id, "more") // the next writer finishes it
			check(12, append(numbers(0, 10), "new", "more")...)
			Expect(finish(ctx)).To(BeZero())
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, many-4)))
		})

		It("logs inherited messages too, and leaves them to their origin and to other forks", Label("REL-02"), func(ctx SpecContext) {
			origin := e.said(ctx, many)
			fork := e.fork(ctx, origin, many-1)
			e.apply(ctx, fork, &store.DeleteMessage{ID: "m20"})
			for i := range many {
				e.apply(ctx, fork, &store.AppendMessage{Message: named(fmt.Sprint("f", i), "own")})
			}
			second := e.fork(ctx, fork, many+10)
			interrupted(ctx, fork, &store.Truncate{Index: 4})
			text := "edited"
			e.apply(ctx, origin, &store.UpdateMessage{ID: "m30", Content: &text})
			_, err := e.store.PurgeThread(ctx, origin)
			Expect(err).NotTo(HaveOccurred())
			Expect(finish(ctx)).To(Equal(1))
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, 5)))
			Expect(e.texts(ctx, second, allMessages)).To(HaveLen(many + 11))
			m, err := e.store.Message(ctx, second, "m30")
			Expect(err).NotTo(HaveOccurred())
			Expect(*m.Content).To(Equal("30"))
			Expect(ofType(e.events(ctx, fork), store.EventMessageDeleted)).To(HaveLen(2*many - 5))
			for _, id := range []string{fork, second} {
				_, err := e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			e.nothingLeft(ctx)
		})

		It("goes on after a conversation of which they cannot be removed", func(ctx SpecContext) {
			var threads []string
			for range 3 {
				id := e.said(ctx, many)
				interrupted(ctx, id, &store.Truncate{Index: 4})
				threads = append(threads, id)
				e.clock.Step(time.Second)
			}
			db, err := e.backend.SQL()
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(db.Close)
			first := fmt.Sprintf(`(SELECT key FROM thread WHERE id = '%s')`, threads[0])
			// The last deletion of the first one cannot be logged.
			_, err = db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO log (thread, seq, type, run_id, message_id, created_at) VALUES (%s, %d, 'taken', '', '', 0)`, first, 2*many-5))
			Expect(err).NotTo(HaveOccurred())
			finished, err := e.store.FinishRemovals(ctx, e.now()+1, 0)
			Expect(err).To(MatchError(ContainSubstring(threads[0])))
			Expect(finished).To(Equal(2))
			for _, id := range threads[1:] {
				Expect(ofType(e.events(ctx, id), store.EventMessageDeleted)).To(HaveLen(many - 5))
			}
			_, err = db.ExecContext(ctx, `DELETE FROM log WHERE type = 'taken'`)
			Expect(err).NotTo(HaveOccurred())
			Expect(finish(ctx)).To(Equal(1))
			Expect(ofType(e.events(ctx, threads[0]), store.EventMessageDeleted)).To(HaveLen(many - 5))
		})

		It("can be interrupted and repeated as a purge, which shows nothing of the conversation", Label("THR-09"), func(ctx SpecContext) {
			id := e.said(ctx, many)
			fork := e.fork(ctx, id, many-10)
			cut, cancel := context.WithCancel(ctx)
			stop := e.store.Subscribe(func(store.Notification) { cancel() })
			_, err := e.store.PurgeThread(cut, id)
			stop()
			Expect(err).To(MatchError(context.Canceled))
			Expect(e.texts(ctx, id, allMessages)).To(BeEmpty())
			_, err = e.store.Message(ctx, id, "m1")
			Expect(err).To(MatchError(store.ErrNotFound))
			for range 2 {
				_, err = e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			_, err = e.store.Thread(ctx, id)
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, many-9)))
			_, err = e.store.PurgeThread(ctx, fork)
			Expect(err).NotTo(HaveOccurred())
			e.nothingLeft(ctx)
		})

		It("leaves the positions of what a fork reads of a purged thread, whatever its last number is", Label("REL-02", "THR-09"), func(ctx SpecContext) {
			for n := 20; n < 28; n++ { // a multiple of txn.BlockSeqs among them
				origin := e.said(ctx, n)
				fork := e.fork(ctx, origin, int64(n-1))
				_, err := e.store.PurgeThread(ctx, origin)
				Expect(err).NotTo(HaveOccurred())
				e.apply(ctx, fork, &store.DeleteMessage{ID: fmt.Sprint("m", n-1)}, &store.AppendMessage{Message: message("own")})
				for i := range n - 1 {
					Expect(e.texts(ctx, fork, store.MessageQuery{Order: "asc", Offset: i, Limit: 1})).To(Equal([]string{fmt.Sprint(i)}), "of %d", n)
				}
			}
		})

		It("is done for twenty threads at once while others commit", func(ctx SpecContext) {
			var threads []string
			for i := range 20 {
				id := e.said(ctx, many)
				for f := range 5 {
					e.apply(ctx, id, putFile(fmt.Sprint("/f", f), byte(f)), putFile(fmt.Sprint("/own", f), byte(10+5*i+f)))
				}
				threads = append(threads, id)
			}
			busy := e.thread(ctx)
			ended := make(chan struct{})
			var writers, removers sync.WaitGroup
			written := 0
			writers.Go(func() {
				defer GinkgoRecover()
				for {
					select {
					case <-ended:
						return
					default:
						e.apply(ctx, busy, &store.AppendMessage{Message: message("on")})
						written++
					}
				}
			})
			var mu sync.Mutex
			var freed []string
			for i, id := range threads {
				removers.Go(func() {
					defer GinkgoRecover()
					if i%4 == 0 {
						e.apply(ctx, id, &store.Destroy{Reason: store.DestroyedExplicit})
					}
					some, err := e.store.PurgeThread(ctx, id)
					Expect(err).NotTo(HaveOccurred())
					mu.Lock()
					defer mu.Unlock()
					freed = append(freed, some...)
				})
			}
			removers.Wait()
			close(ended)
			writers.Wait()
			Expect(freed).To(HaveLen(105), "each object once")
			Expect(e.info(ctx, busy).Messages).To(BeEquivalentTo(written))
			e.nothingLeft(ctx)
		})
	})
}

// named returns a message with an id.
func named(id, text string) *store.Message {
	m := message(text)
	m.ID = id
	return m
}

// nothingLeft checks that no rows are left of threads that forks do not read.
func (e *env) nothingLeft(ctx context.Context) {
	GinkgoHelper()
	if l, ok := e.store.(interface {
		LeftOver(context.Context) (int, int, error)
	}); ok {
		threads, messages, err := l.LeftOver(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect([]int{threads, messages}).To(Equal([]int{0, 0}))
	}
}
