package pgsuite

import (
	"context"
	"database/sql"

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
	It("is refused when it is of a newer release", func(ctx SpecContext) {
		d := newDatabase(ctx)
		db, err := sql.Open("pgx", d.url)
		Expect(err).NotTo(HaveOccurred())
		_, err = db.ExecContext(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)")
		Expect(err).NotTo(HaveOccurred())
		Expect(db.Close()).To(Succeed())
		_, err = d.Open(nil)
		Expect(err).To(MatchError(ContainSubstring("newer release (schema 999")))
	})

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
})
