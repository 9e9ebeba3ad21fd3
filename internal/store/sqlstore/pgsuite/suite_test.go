// Package pgsuite runs the store's suite on PostgreSQL.
package pgsuite

import (
	"context"
	"database/sql"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
	"github.com/skein-dev/skein/internal/store/storetest"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

func TestPostgres(t *testing.T) {
	messages.Slice = 12 // few messages take as many slices as thousands usually do
	messages.MaxSources, messages.MaxSegments = 40, 200
	search.Ranked = 20
	RegisterFailHandler(Fail)
	RunSpecs(t, "sqlstore on PostgreSQL")
}

var (
	server   *pgtest.Server
	template string // a database that contains only the schema
)

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	server, err = pgtest.Start(ctx, pgtest.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
	template, err = server.NewDatabase(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: server.URL(template)})
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Close()).To(Succeed())
})

// database is a database of the server.
type database struct{ name, url string }

func newDatabase(ctx context.Context) database {
	GinkgoHelper()
	name, err := server.NewDatabase(ctx, template)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { Expect(server.DropDatabase(ctx, name)).To(Succeed()) })
	return database{name, server.URL(name)}
}

func (d database) Open(c clock.PassiveClock) (store.Store, error) {
	return sqlstore.OpenPostgres(context.Background(), sqlstore.PostgresOptions{URL: d.url, Clock: c})
}

// Exclusive returns false, because other replicas may also have the database open.
func (database) Exclusive() bool { return false }

func (d database) SQL() (*sql.DB, error) { return sql.Open("pgx", d.url) }

var _ = storetest.DescribeStore("PostgreSQL", func() storetest.Backend { return newDatabase(context.Background()) })
