package pgsuite

import (
	"context"
	"database/sql"
	"io/fs"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/pressly/goose/v3"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
)

// empty creates a database without a schema.
func empty(ctx context.Context) (url string, db *sql.DB) {
	GinkgoHelper()
	name, err := server.NewDatabase(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { Expect(server.DropDatabase(ctx, name)).To(Succeed()) })
	db, err = sql.Open("pgx", server.URL(name))
	Expect(err).NotTo(HaveOccurred())
	return server.URL(name), db
}

var _ = storetest.DescribeMigrations("PostgreSQL", func(ctx context.Context) storetest.Migrating {
	url, db := empty(ctx)
	files, err := sqlstore.Migrations("postgres")
	Expect(err).NotTo(HaveOccurred())
	return storetest.Migrating{Dialect: goose.DialectPostgres, Files: files, DB: db, Open: func() (store.Store, error) {
		return sqlstore.OpenPostgres(context.Background(), sqlstore.PostgresOptions{URL: url})
	}}
})

var _ = Describe("PostgreSQL's schema", Label("K8S-05"), func() {
	It("is created once by replicas that start together", func(ctx SpecContext) {
		url, db := empty(ctx)
		Expect(db.Close()).To(Succeed())
		errs := make(chan error, 4)
		for range 4 {
			go func() {
				s, err := sqlstore.OpenPostgres(context.Background(), sqlstore.PostgresOptions{URL: url})
				if err == nil {
					err = s.Close()
				}
				errs <- err
			}()
		}
		for range 4 {
			Expect(<-errs).To(Succeed())
		}
	})

	It("is migrated while other replicas wait for that and work: an index is built without a lock on its table", Label("K8S-10"), func(ctx SpecContext) {
		d := newDatabase(ctx)
		working, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(working.Close)
		files, err := sqlstore.Migrations("postgres")
		Expect(err).NotTo(HaveOccurred())
		newer := fstest.MapFS{}
		names, err := fs.Glob(files, "*.sql")
		Expect(err).NotTo(HaveOccurred())
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			Expect(err).NotTo(HaveOccurred())
			newer[name] = &fstest.MapFile{Data: text}
		}
		newer["90001_quick.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE run ADD COLUMN extra BIGINT NOT NULL DEFAULT 0;\n")}
		newer["90002_index.sql"] = &fstest.MapFile{Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
			"DROP INDEX CONCURRENTLY IF EXISTS run_extra;\nCREATE INDEX CONCURRENTLY run_extra ON run (extra);\n")}
		config, err := pgx.ParseConfig(d.url)
		Expect(err).NotTo(HaveOccurred())

		By("holding the table for a moment, as a transaction of another replica does")
		db, err := sql.Open("pgx", d.url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		tx, err := db.BeginTx(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		_, err = tx.ExecContext(ctx, "SELECT count(*) FROM run")
		Expect(err).NotTo(HaveOccurred())
		var log lockedLog
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				errs <- sqlstore.MigratePostgres(ctx, config.Copy(), newer, funcr.New(func(_, args string) { log.add(args) }, funcr.Options{}))
			}()
		}
		Eventually(ctx, log.String).WithTimeout(time.Minute).Should(And(ContainSubstring("waits for a table that is in use"), ContainSubstring("Another replica migrates")))
		Expect(tx.Rollback()).To(Succeed())
		for range 3 {
			Eventually(ctx, errs).WithTimeout(time.Minute).Should(Receive(Succeed()))
		}
		var valid bool
		Expect(db.QueryRowContext(ctx, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'run_extra'::regclass").Scan(&valid)).To(Succeed())
		Expect(valid).To(BeTrue())

		By("going on with this release")
		Expect(working.Ping(ctx)).To(Succeed())
		again, err := d.Open(nil)
		Expect(err).NotTo(HaveOccurred(), "one that restarts can use the newer schema")
		Expect(again.Ping(ctx)).To(Succeed())
		Expect(again.Close()).To(Succeed())
	})
})

// lockedLog collects lines of a log.
type lockedLog struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (l *lockedLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.WriteString(line + "\n")
}

// String returns the lines.
func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}
