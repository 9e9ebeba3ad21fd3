package pgsuite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// conversations makes a namespace with n threads that have a row each of what is not visible before a restore is finished, and reads its
// backup.
func conversations(ctx context.Context, namespace string, n int) (rows []store.BackupRow, sum *store.BackupSummary, ids []string) {
	GinkgoHelper()
	s, err := sqlite().Open(nil)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(s.Close()).To(Succeed()) }()
	for i := range n {
		id := fmt.Sprintf("%s-%d", namespace, i)
		ids = append(ids, id)
		_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: namespace, Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Apply(ctx, id, nil, text("hello"), &store.PutValue{Key: "k", Value: []byte(`1`)}, &store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: store.RunRunning}})).To(Succeed())
		Expect(s.Apply(ctx, id, nil, &store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: store.RunSucceeded, Usage: []byte(`{"inputTokens":7}`)}})).To(Succeed())
		_, err = s.ReserveChild(ctx, store.ChildTask{ID: id + "-c", ParentID: id, Reference: "c", Namespace: namespace, Kind: "k", Agent: "a"}, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.SetKV(ctx, store.Namespace{Name: namespace}, "cache", store.KVEntry{Key: id, Value: []byte(`1`)})).To(Succeed())
		_, err = s.RecordFiring(ctx, store.Firing{EffectID: "e-" + id, Due: 5, ThreadID: id, Namespace: namespace, Name: "remind", Effect: "remind me"})
		Expect(err).NotTo(HaveOccurred())
	}
	sum, err = s.Backup(ctx, store.Namespace{Name: namespace}, func(r store.BackupRow) error {
		// Earlier releases stored NUL in the texts of SQLite.
		rows = append(rows, store.BackupRow{Table: r.Table, Data: bytes.ReplaceAll(r.Data, []byte("remind me"), []byte(`remind\u0000me`))})
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	for _, table := range []string{"thread_head", "child_task", "kv_service", "usage_sum", "effect_firing"} {
		Expect(sum.Rows[table]).To(BeNumerically(">=", n), table)
	}
	return rows, sum, ids
}

var _ = Describe("A restore", Label("K8S-09"), func() {
	// A transaction is cut off after a time, so one whose statements grow with the rows never ends.
	It("takes a fixed number of statements to finish, however many rows it has", func(ctx SpecContext) {
		d := newDatabase(ctx)
		way := through(d)
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: way.url, Readers: 1, Writers: 1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		took := func(namespace string, n int) map[string]int {
			GinkgoHelper()
			rows, sum, ids := conversations(ctx, namespace, n)
			r := store.Restore{ID: "b", Namespace: namespace, NamespaceUID: "uid"}
			took := map[string]int{}
			effects := map[string]string{}
			_, took["trips to see what is there"] = way.during(func() {
				Expect(s.RestoreState(ctx, r, ids)).To(HaveField("Taken", BeEmpty()))
			})
			_, took["trips to store rows"] = way.during(func() { Expect(s.RestoreRows(ctx, r, rows)).To(Succeed()) })
			took["statements to finish"], took["trips to finish"] = way.during(func() { Expect(s.FinishRestore(ctx, r, sum.Rows)).To(Succeed()) })
			for _, id := range ids {
				Expect(s.Apply(ctx, id, nil, &store.Adopt{ObjectUID: "new-" + id, Agent: "a"})).To(Succeed())
				effects["e-"+id] = "new-" + id
			}
			took["statements to bind"], took["trips to bind"] = way.during(func() { Expect(s.BindEffects(ctx, r, effects)).To(Succeed()) })
			Expect(s.PendingFirings(ctx)).NotTo(BeEmpty())
			Expect(s.GetKV(ctx, store.Namespace{Name: namespace, UID: "uid"}, "cache", ids[n-1])).To(HaveField("Value", MatchJSON(`1`)))
			return took
		}
		took("first", 2) // the connections have prepared their statements then
		few := took("few", 2)
		Expect(took("many", 40)).To(Equal(few))
		for what, n := range few {
			Expect(n).To(BeNumerically(">", 0), what)
		}
	})

	It("is finished by two at once", func(ctx SpecContext) {
		rows, sum, _ := conversations(ctx, "n", 2)
		d, r := newDatabase(ctx), store.Restore{ID: "b", Namespace: "n"}
		first, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(first.Close()).To(Succeed()) })
		second, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: d.url, Readers: 1})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(second.Close()).To(Succeed()) })
		Expect(first.RestoreRows(ctx, r, rows)).To(Succeed())

		// A backup has the only connection with which the second one could check the rows.
		_, _, err = first.CreateThread(ctx, store.Thread{ID: "t", Namespace: "other", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		begun, wait, ended := make(chan bool, 1), make(chan bool), make(chan error, 1)
		release := sync.OnceFunc(func() { close(wait) })
		DeferCleanup(release)
		go func() {
			once := sync.OnceFunc(func() { begun <- true; <-wait })
			_, err := second.Backup(context.Background(), store.Namespace{Name: "other"}, func(store.BackupRow) error { once(); return nil })
			ended <- err
		}()
		<-begun
		finished := make(chan error, 1)
		go func() { finished <- second.FinishRestore(context.Background(), r, sum.Rows) }()
		db, err := pgx.Connect(ctx, d.url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		Eventually(ctx, func() (n int) {
			Expect(db.QueryRow(ctx, `SELECT count(*) FROM restore_row WHERE kind = 'checked'`).Scan(&n)).To(Succeed())
			return n
		}).Should(Equal(1))
		Expect(first.FinishRestore(ctx, r, sum.Rows)).To(Succeed())
		release()
		Expect(<-ended).To(Succeed())
		Expect(<-finished).To(Succeed())
	})

	Context("that is being finished", func() {
		var (
			d    database
			s    store.Store
			r    store.Restore
			rows []store.BackupRow
			ids  []string
			// db has locked a table that the check of the rows reads late. waiting are the transactions that want it.
			db       *pgx.Conn
			waiting  func() int
			finished chan error
		)
		BeforeEach(func(ctx SpecContext) {
			var sum *store.BackupSummary
			rows, sum, ids = conversations(ctx, "n", 3)
			d, r = newDatabase(ctx), store.Restore{ID: "b", Namespace: "n"}
			var err error
			s, err = d.Open(nil)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
			Expect(s.RestoreRows(ctx, r, rows)).To(Succeed())

			db, err = pgx.Connect(ctx, d.url)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(db.Close)
			_, err = db.Exec(ctx, `BEGIN; LOCK TABLE effect_args IN ACCESS EXCLUSIVE MODE`)
			Expect(err).NotTo(HaveOccurred())
			waiting = func() (n int) {
				Expect(db.QueryRow(context.Background(), `SELECT count(*) FROM pg_locks WHERE relation = 'effect_args'::regclass AND NOT granted`).Scan(&n)).To(Succeed())
				return n
			}
			finished = make(chan error, 1)
			go func() { finished <- s.FinishRestore(context.Background(), r, sum.Rows) }()
			Eventually(ctx, waiting).Should(Equal(1))
		})
		unlock := func(ctx context.Context) {
			GinkgoHelper()
			_, err := db.Exec(ctx, `COMMIT`)
			Expect(err).NotTo(HaveOccurred())
		}
		refused := func(err error, text string) {
			GinkgoHelper()
			var wrong *store.BackupError
			Expect(errors.As(err, &wrong)).To(BeTrue(), "%v", err)
			Expect(wrong.Message).To(ContainSubstring(text))
		}

		It("shows no row that arrives meanwhile without a check", func(ctx SpecContext) {
			late := store.BackupRow{Table: "kv", Data: fmt.Appendf(nil, `{"thread":%q,"key":"late","value":"1","updated_at":1}`, ids[0])}
			Expect(s.RestoreRows(ctx, r, []store.BackupRow{late})).To(Succeed())
			unlock(ctx)
			refused(<-finished, "4 rows of table kv have arrived of 3")
			Expect(s.Threads(ctx, store.ThreadQuery{Namespace: "n"})).To(BeEmpty())
		})

		It("is finished when the rows that arrive meanwhile are the same", func(ctx SpecContext) {
			Expect(s.RestoreRows(ctx, r, rows[:3])).To(Succeed())
			unlock(ctx)
			Expect(<-finished).To(Succeed())
			Expect(s.Threads(ctx, store.ThreadQuery{Namespace: "n"})).To(HaveLen(3))
		})

		It("shows nothing when it is abandoned meanwhile, and goes on after it was abandoned to the end", func(ctx SpecContext) {
			abandoning, interrupt := context.WithCancel(ctx)
			abandoned := make(chan error, 1)
			go func() {
				_, err := s.AbandonRestore(abandoning, r)
				abandoned <- err
			}()
			Eventually(ctx, waiting).Should(Equal(2))
			interrupt()
			unlock(ctx)
			refused(<-finished, "is being abandoned")
			Expect(<-abandoned).To(MatchError(context.Canceled))
			Expect(s.Threads(ctx, store.ThreadQuery{Namespace: "n"})).To(BeEmpty())
			refused(s.RestoreRows(ctx, r, rows), "is being abandoned")

			_, err := s.AbandonRestore(ctx, r)
			Expect(err).NotTo(HaveOccurred())
			Expect(s.RestoreRows(ctx, r, rows)).To(Succeed())
			Expect(s.RestoreState(ctx, r, ids)).To(HaveField("Staged", BeEquivalentTo(3)))
		})
	})
})
