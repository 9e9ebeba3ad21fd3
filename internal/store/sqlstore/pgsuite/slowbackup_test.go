package pgsuite

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

var _ = Describe("A backup whose reader is slow", Label("K8S-09"), func() {
	It("is not cut off by the limit for transactions that do nothing", func(ctx SpecContext) {
		d := newDatabase(ctx)
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: d.url + "&idle_in_transaction_session_timeout=300ms"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		const threads = 3
		for i := range threads {
			_, _, err := s.CreateThread(ctx, store.Thread{ID: fmt.Sprint("t", i), Namespace: "n", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
		}
		var read int
		last, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := s.Backup(ctx, store.Namespace{Name: "n"}, func(r store.BackupRow) error {
				if r.Table != "thread" {
					return nil
				}
				if read++; read == threads { // the server has sent all of the table
					close(last)
					<-goOn
				}
				return nil
			})
			ended <- err
		}()
		Eventually(ctx, last).Should(BeClosed())
		db, err := pgx.Connect(ctx, d.url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		Eventually(ctx, func() (over bool) {
			// The transaction has done nothing for longer than the limit, unless it is gone.
			Expect(db.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'skein %'
				AND state <> 'idle' AND clock_timestamp() - state_change < interval '600 ms')`).Scan(&over)).To(Succeed())
			return over
		}).Should(BeTrue())
		close(goOn)
		Expect(<-ended).To(Succeed())
	})
})
