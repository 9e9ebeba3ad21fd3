package pgsuite

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// locked begins a transaction that has the head of a thread.
func locked(ctx context.Context, d database, id string) pgx.Tx {
	GinkgoHelper()
	tx, err := connect(ctx, d).Begin(ctx)
	Expect(err).NotTo(HaveOccurred())
	_, err = tx.Exec(ctx, `SELECT FROM thread_head WHERE thread = (SELECT key FROM thread WHERE id = $1) FOR UPDATE`, id)
	Expect(err).NotTo(HaveOccurred())
	return tx
}

func connect(ctx context.Context, d database) *pgx.Conn {
	GinkgoHelper()
	db, err := pgx.Connect(ctx, d.url)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(db.Close)
	return db
}

// awaitWaiting waits until so many sessions wait for locks. They get a lock in the order in which they came.
func awaitWaiting(ctx context.Context, db *pgx.Conn, sessions int) {
	GinkgoHelper()
	Eventually(ctx, func() (n int) {
		Expect(db.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)).To(Succeed())
		return n
	}).Should(Equal(sessions))
}

// inBackground calls a function that checks what it does. The returned function waits for its end.
func inBackground(fn func()) (wait func()) {
	done := make(chan bool)
	go func() {
		defer close(done)
		defer GinkgoRecover()
		fn()
	}()
	return func() { <-done }
}

var _ = Describe("While forks read a thread", Label("REL-02"), func() {
	var (
		d          database
		one, other store.Store
	)
	BeforeEach(func() {
		d = newDatabase(context.Background())
		for _, s := range []*store.Store{&one, &other} {
			opened, err := d.Open(nil)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { Expect(opened.Close()).To(Succeed()) })
			*s = opened
		}
	})
	create := func(ctx context.Context, id string, ops ...store.Op) {
		GinkgoHelper()
		_, _, err := one.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"}, ops...)
		Expect(err).NotTo(HaveOccurred())
	}
	purge := func(ctx context.Context, id string) {
		GinkgoHelper()
		_, err := one.PurgeThread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = one.Thread(ctx, id)
		Expect(err).To(MatchError(store.ErrNotFound))
	}
	say := func(ctx context.Context, id string, from, to int) {
		GinkgoHelper()
		for i := from; i < to; i++ {
			Expect(one.Apply(ctx, id, nil, text(fmt.Sprint("m", i)))).To(Succeed())
		}
	}
	// unrelated makes forks of a thread that have no relationship with it: they come from a fork that is purged.
	unrelated := func(ctx context.Context, origin string, ids ...string) {
		GinkgoHelper()
		create(ctx, "between", &store.Fork{Origin: origin, Newest: true})
		for _, id := range ids {
			create(ctx, id, &store.Fork{Origin: "between", Newest: true})
		}
		purge(ctx, "between")
	}

	const messages, kept = 50, 5
	DescribeTable("the messages that a fork removes in slices have their deletion logged once, whatever is done to the thread meanwhile", Label("MSG-11", "LOG-03"),
		func(ctx SpecContext, inherited int, change store.Op) {
			create(ctx, "origin")
			say(ctx, "origin", 0, inherited)
			unrelated(ctx, "origin", "fork")
			say(ctx, "fork", inherited, messages)
			interrupted, cancel := context.WithCancel(ctx)
			stop := one.Subscribe(func(n store.Notification) {
				if !n.Remote {
					cancel()
				}
			})
			Expect(one.Apply(interrupted, "fork", nil, &store.Truncate{Index: kept - 1})).To(Succeed())
			stop()

			held, db := locked(ctx, d, "origin"), connect(ctx, d)
			changed := inBackground(func() { Expect(other.Apply(ctx, "origin", nil, change)).To(Succeed()) })
			awaitWaiting(ctx, db, 1)
			finished := inBackground(func() { Expect(one.FinishRemovals(ctx, 1<<62, 0)).To(Equal(1)) })
			awaitWaiting(ctx, db, 2)
			Expect(held.Commit(ctx)).To(Succeed())
			changed()
			finished()

			events, err := one.Events(ctx, "fork", 0, 0)
			Expect(err).NotTo(HaveOccurred())
			count := map[string]int{}
			for i, ev := range events {
				Expect(ev.Seq).To(BeEquivalentTo(i+1), "the log has no gaps")
				count[ev.Type]++
			}
			Expect(count).To(Equal(map[string]int{
				store.EventMessageCreated: messages, store.EventMessageDeleted: messages - kept, store.EventTruncated: 1,
			}))
			purge(ctx, "fork")
			purge(ctx, "origin")
			var left int
			Expect(db.QueryRow(ctx, `SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM thread)`).Scan(&left)).To(Succeed())
			Expect(left).To(BeZero())
		},
		Entry("a message is changed", messages, &store.UpdateMessage{ID: "m48", Content: new("changed")}),
		Entry("its messages are removed", 10, &store.Truncate{Index: kept - 1}),
	)

	DescribeTable("a message can be changed while one of the forks is purged", Label("MSG-06", "THR-09"), func(ctx SpecContext, change func(ctx context.Context)) {
		create(ctx, "origin", text("m"))
		unrelated(ctx, "origin", "first", "second")
		held := locked(ctx, d, "first")
		changed := inBackground(func() { change(ctx) })
		awaitWaiting(ctx, connect(ctx, d), 1) // it has read that there are two forks
		purge(ctx, "second")
		Expect(held.Commit(ctx)).To(Succeed())
		changed()
		m, err := one.Message(ctx, "first", "m")
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Content).To(HaveValue(Equal("m")))
	},
		Entry("with an update", func(ctx context.Context) {
			Expect(other.Apply(ctx, "origin", nil, &store.UpdateMessage{ID: "m", Content: new("changed")})).To(Succeed())
		}),
		Entry("with a deletion", func(ctx context.Context) {
			op := &store.DeleteMessage{ID: "m"}
			Expect(other.Apply(ctx, "origin", nil, op)).To(Succeed())
			Expect(op.Deleted).To(BeTrue())
		}),
		Entry("with a truncation", Label("MSG-11"), func(ctx context.Context) {
			op := &store.Truncate{Index: -1}
			Expect(other.Apply(ctx, "origin", nil, op)).To(Succeed())
			Expect(op.Removed).To(BeEquivalentTo(1))
		}),
		Entry("with a purge", func(ctx context.Context) {
			_, err := other.PurgeThread(ctx, "origin")
			Expect(err).NotTo(HaveOccurred())
			_, err = other.Thread(ctx, "origin")
			Expect(err).To(MatchError(store.ErrNotFound))
		}),
	)

	DescribeTable("what a thread deletes while a fork that deleted it too is changed leaves the indexes of both right", Label("MSG-06", "MSG-11"), func(ctx SpecContext, change store.Op, left int) {
		DeferCleanup(func(n int64) { txn.BlockSeqs = n }, txn.BlockSeqs)
		txn.BlockSeqs = 2 // pages find their beginnings by kept counts, as those of long threads do
		create(ctx, "origin")
		say(ctx, "origin", 0, 20)
		unrelated(ctx, "origin", "fork")
		Expect(one.Apply(ctx, "fork", nil, &store.DeleteMessage{ID: "m5"})).To(Succeed())

		// The deletion in the origin has locked it and written its counts, and waits to log an event.
		db := connect(ctx, d)
		held, err := db.Begin(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = held.Exec(ctx, `LOCK TABLE log IN SHARE MODE`)
		Expect(err).NotTo(HaveOccurred())
		watcher := connect(ctx, d)
		deleted := inBackground(func() { Expect(one.Apply(ctx, "origin", nil, &store.DeleteMessage{ID: "m5"})).To(Succeed()) })
		awaitWaiting(ctx, watcher, 1)
		changed := inBackground(func() { Expect(other.Apply(ctx, "fork", nil, change)).To(Succeed()) })
		awaitWaiting(ctx, watcher, 2)
		var logging int
		Expect(watcher.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'log'::regclass`).Scan(&logging)).To(Succeed())
		Expect(logging).To(Equal(1), "the change of the fork waits for the origin")
		Expect(held.Commit(ctx)).To(Succeed())
		deleted()
		changed()

		expectIndexes(ctx, one, "origin", 19)
		expectIndexes(ctx, one, "fork", left)
	},
		Entry("with an update", &store.UpdateMessage{ID: "m10", Content: new("changed")}, 19),
		Entry("with a deletion", &store.DeleteMessage{ID: "m10"}, 18),
		Entry("with a truncation", &store.Truncate{MessageID: "m10"}, 10),
	)
})

// expectIndexes checks that each page of one message has the message at its place among all of them.
func expectIndexes(ctx context.Context, s store.Store, id string, total int) {
	GinkgoHelper()
	all, err := s.Messages(ctx, id, store.MessageQuery{Order: "asc"})
	Expect(err).NotTo(HaveOccurred())
	Expect(all.Messages).To(HaveLen(total))
	Expect(all.Total).To(BeEquivalentTo(total))
	for i, m := range all.Messages {
		page, err := s.Messages(ctx, id, store.MessageQuery{Order: "asc", Offset: i, Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveLen(1))
		Expect(page.Messages[0].ID).To(Equal(m.ID), "message %d of %s", i, id)
	}
}

var _ = Describe("A fork", Label("REL-02"), func() {
	It("takes a fixed number of statements and round trips, however many threads it inherits from", func(ctx SpecContext) {
		way := through(newDatabase(ctx))
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: way.url, Readers: 1, Writers: 1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		say := func(id string) {
			GinkgoHelper()
			Expect(s.Apply(ctx, id, nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: ptr.To("hello")}})).To(Succeed())
		}
		fork := func(origin, id string, messages int) {
			GinkgoHelper()
			op := &store.Fork{Origin: origin, Newest: true}
			_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"}, op)
			Expect(err).NotTo(HaveOccurred())
			Expect(op.Messages).To(BeEquivalentTo(messages))
		}
		took := func(name string, sources int) (statements, trips int) {
			GinkgoHelper()
			id := name + "-0"
			_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
			say(id)
			for i := 1; i < sources; i++ {
				next := fmt.Sprintf("%s-%d", name, i)
				fork(id, next, i)
				say(next)
				id = next
			}
			statements, trips = way.during(func() { fork(id, name+"-fork", sources) })
			p, err := s.Messages(ctx, name+"-fork", store.MessageQuery{})
			Expect(err).NotTo(HaveOccurred())
			Expect(p.Messages).To(HaveLen(sources))
			return statements, trips
		}
		took("first", 3) // the connection has prepared its statements then
		statements, trips := took("few", 3)
		Expect(trips).To(BeNumerically(">", 0))
		more, moreTrips := took("many", 30)
		Expect(more).To(Equal(statements))
		Expect(moreTrips).To(Equal(trips))
	})
})
