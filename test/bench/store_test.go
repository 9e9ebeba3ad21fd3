package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

const contentBytes = 300 // of a message

// database is one that the store's figures are taken on, with its floor: bare one-row transactions.
type database struct {
	name string
	open func(ctx context.Context) store.Store
	// bare gives a function that inserts n rows of a message's size on each of so many connections, each row in a
	// transaction of its own.
	bare func(ctx context.Context, connections int) func(n int)
	// bareConnections to compare 16 threads with: SQLite has only one writer.
	bareConnections int
	// goals of appends, as a part of the bare rows, by the number of threads.
	goals map[int]string
}

var sqlite = database{name: "SQLite", open: openSQLite, bare: bareSQLite, bareConnections: 1,
	goals: map[int]string{1: " (goal 0.8)", 16: " (goal 3)"}}

func openSQLite(ctx context.Context) store.Store {
	GinkgoHelper()
	s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	return s
}

func bareSQLite(_ context.Context, connections int) func(n int) {
	GinkgoHelper()
	Expect(connections).To(Equal(1), "SQLite has one writer")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(GinkgoT().TempDir(), "bare.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(db.Close)
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE bare (id INTEGER PRIMARY KEY, body TEXT) STRICT`)
	Expect(err).NotTo(HaveOccurred())
	insert, err := db.Prepare(`INSERT INTO bare (body) VALUES (?)`)
	Expect(err).NotTo(HaveOccurred())
	body := strings.Repeat("x", contentBytes)
	return func(n int) {
		for range n {
			tx, err := db.Begin()
			Expect(err).NotTo(HaveOccurred())
			_, err = tx.Stmt(insert).Exec(body)
			Expect(err).NotTo(HaveOccurred())
			Expect(tx.Commit()).To(Succeed())
		}
	}
}

var _ = Describe("The store", Label("store"), func() {
	for _, db := range databases {
		It("appends on "+db.name, func(ctx SpecContext) {
			for _, threads := range []int{1, 16} {
				ratio, rate, bare := appends(ctx, db, threads)
				figure(fmt.Sprintf("appends a second, %s, %d threads", db.name, threads), "%.2f of bare%s  (%.0f/s against %.0f/s on %d connections)",
					ratio, db.goals[threads], rate, bare, connectionsFor(db, threads))
			}
		}, NodeTimeout(5*time.Minute))

		It("reads pages on "+db.name, func(ctx SpecContext) {
			s := db.open(ctx)
			small, large := conversation(ctx, s, "small", 100), conversation(ctx, s, "large", 100_000)
			floor, newest, middle := []time.Duration{}, []time.Duration{}, []time.Duration{}
			for range 300 { // in turns, because the machine's speed changes
				floor = append(floor, page(ctx, s, small, 0))
				newest = append(newest, page(ctx, s, large, 0))
				middle = append(middle, page(ctx, s, large, 50_000))
			}
			figure("page of 100 messages, "+db.name, "newest of 100,000 %s, middle %s, of 100 %s  (%.2f and %.2f times)", round(quantile(newest, .5)),
				round(quantile(middle, .5)), round(quantile(floor, .5)), times(newest, floor), times(middle, floor))
		}, NodeTimeout(5*time.Minute))

		It("forks on "+db.name, func(ctx SpecContext) {
			s := db.open(ctx)
			conversation(ctx, s, "small", 10)
			conversation(ctx, s, "large", 100_000)
			made := 0
			fork := func(origin string, index int64) time.Duration {
				made++
				return timed(func() {
					op := &store.Fork{Origin: origin, Index: index}
					_, _, err := s.CreateThread(ctx, store.Thread{ID: fmt.Sprint("fork-", made), Namespace: "bench", Agent: "a"}, op)
					Expect(err).NotTo(HaveOccurred())
					Expect(op.Messages).To(Equal(index + 1))
				})
			}
			floor, end, middle := []time.Duration{}, []time.Duration{}, []time.Duration{}
			for range 100 {
				floor = append(floor, fork("small", 9))
				end = append(end, fork("large", 99_999))
				middle = append(middle, fork("large", 50_000))
			}
			figure("fork, "+db.name, "at 100,000 messages %s, in their middle %s, at 10 %s  (%.2f and %.2f times; goal 1.00: the same time at 10 and at 100,000)", round(quantile(end, .5)),
				round(quantile(middle, .5)), round(quantile(floor, .5)), times(end, floor), times(middle, floor))
		}, NodeTimeout(5*time.Minute))

		It("reserves children on "+db.name, Label("scale"), func(ctx SpecContext) {
			s := db.open(ctx)
			limits := []store.ChildLimit{{Scope: store.ChildrenOfParent, Most: 1 << 20}, {Scope: store.ChildrenOfKind, Most: 1 << 20},
				{Scope: store.ChildrenOfAgent, Most: 1 << 20}, {Scope: store.ChildrenOfNamespace, Most: 1 << 20}}
			// reserve adds children from one number to another and returns how long each took.
			reserve := func(namespace string, from, to int) (took []time.Duration) {
				for i := from; i < to; i++ {
					name := fmt.Sprintf("%s-child-%d", namespace, i)
					took = append(took, timed(func() {
						_, err := s.ReserveChild(ctx, store.ChildTask{ID: name, ParentID: "parent-" + namespace, Reference: name, Namespace: namespace, Kind: "helper", Agent: "worker"}, limits)
						Expect(err).NotTo(HaveOccurred())
					}))
				}
				return took
			}
			reserve("few", 0, 1_000)
			reserve("many", 0, 10_000)
			floor, among := []time.Duration{}, []time.Duration{}
			for i := range 10 { // in turns, because the machine's speed changes
				floor = append(floor, reserve("few", 1_000+i*30, 1_030+i*30)...)
				among = append(among, reserve("many", 10_000+i*30, 10_030+i*30)...)
			}
			figure("reservation of a child, "+db.name, "with 10,000 others %s, with 1,000 %s  (%.2f times; goal 1.2)", round(quantile(among, .5)), round(quantile(floor, .5)), times(among, floor))
		}, NodeTimeout(5*time.Minute))

		It("lists threads on "+db.name, func(ctx SpecContext) {
			s := db.open(ctx)
			list := func(namespace string) time.Duration {
				return timed(func() {
					ts, _, err := s.Threads(ctx, store.ThreadQuery{Namespace: namespace, Limit: 50})
					Expect(err).NotTo(HaveOccurred())
					Expect(ts).To(HaveLen(50))
				})
			}
			many(ctx, s, "few", 100)
			many(ctx, s, "many", 100_000)
			floor, among := []time.Duration{}, []time.Duration{}
			for range 300 {
				floor = append(floor, list("few"))
				among = append(among, list("many"))
			}
			figure("list of 50 threads, "+db.name, "among 100,000 %s, among 100 %s  (%.2f times)", round(quantile(among, .5)), round(quantile(floor, .5)), times(among, floor))
		}, NodeTimeout(10*time.Minute))
	}
})

// appends compares durable appends with bare transactions in the same database, in turns.
func appends(ctx context.Context, db database, threads int) (ratio, rate, bareRate float64) {
	const each = 40
	s := db.open(ctx)
	connections := connectionsFor(db, threads)
	bare := db.bare(ctx, connections)
	many(ctx, s, "bench", threads)
	content := strings.Repeat("x", contentBytes)
	write := func() {
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() {
				defer GinkgoRecover()
				for range each {
					Expect(s.Apply(ctx, threadID("bench", i), nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &content}})).To(Succeed())
				}
			})
		}
		wg.Wait()
	}
	var bareTime, appendTime time.Duration
	var rows, messages int
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		bareTime += timed(func() { bare(each) })
		rows += each * connections
		appendTime += timed(write)
		messages += each * threads
	}
	rate, bareRate = float64(messages)/appendTime.Seconds(), float64(rows)/bareTime.Seconds()
	return rate / bareRate, rate, bareRate
}

func connectionsFor(db database, threads int) int { return min(threads, db.bareConnections) }

func threadID(namespace string, i int) string { return fmt.Sprintf("%s-%d", namespace, i) }

// many makes n threads.
func many(ctx context.Context, s store.Store, namespace string, n int) {
	GinkgoHelper()
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			defer GinkgoRecover()
			for i := w; i < n; i += 64 {
				_, _, err := s.CreateThread(ctx, store.Thread{ID: threadID(namespace, i), Namespace: namespace, Name: fmt.Sprint("thread-", i), Agent: "a"})
				Expect(err).NotTo(HaveOccurred())
			}
		})
	}
	wg.Wait()
}

// conversation makes a thread of so many messages and gives its id.
func conversation(ctx context.Context, s store.Store, id string, n int) string {
	GinkgoHelper()
	_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "bench", Name: id, Agent: "a"})
	Expect(err).NotTo(HaveOccurred())
	content := strings.Repeat("x", contentBytes)
	for n > 0 {
		var ops []store.Op
		for range min(n, 1000) {
			ops = append(ops, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &content}})
		}
		Expect(s.Apply(ctx, id, nil, ops...)).To(Succeed())
		n -= len(ops)
	}
	return id
}

func page(ctx context.Context, s store.Store, id string, offset int) time.Duration {
	return timed(func() {
		p, err := s.Messages(ctx, id, store.MessageQuery{Offset: offset})
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Messages).To(HaveLen(100))
	})
}

// times tells how many times the floor the median is.
func times(d, floor []time.Duration) float64 {
	return float64(quantile(d, .5)) / float64(quantile(floor, .5))
}
