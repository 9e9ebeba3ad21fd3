package bench

import (
	"context"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

// databases that the store's figures are taken on.
var databases = []database{sqlite, {name: "PostgreSQL", open: openPostgres, bare: barePostgres, bareConnections: 16, goals: map[int]string{1: " (goal 0.8)"}}}

// postgres is a server of the bench's own that syncs every commit, as any would.
var postgres = sync.OnceValues(func() (*pgtest.Server, error) {
	return pgtest.Start(context.Background(), pgtest.Options{Durable: true})
})

var _ = AfterSuite(func() {
	if server, err := postgres(); err == nil {
		Expect(server.Stop()).To(Succeed())
	}
})

// postgresURL gives the URL of an empty database.
func postgresURL(ctx context.Context) string {
	GinkgoHelper()
	server, err := postgres()
	Expect(err).NotTo(HaveOccurred())
	name, err := server.NewDatabase(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	return server.URL(name)
}

func openPostgres(ctx context.Context) store.Store {
	GinkgoHelper()
	s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: postgresURL(ctx)})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	return s
}

// barePostgres inserts with prepared statements in transactions of one statement, one round trip each.
func barePostgres(ctx context.Context, connections int) func(n int) {
	GinkgoHelper()
	url := postgresURL(ctx)
	all := make([]*pgx.Conn, connections)
	for i := range all {
		c, err := pgx.Connect(ctx, url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Close(ctx)).To(Succeed()) })
		if i == 0 {
			_, err = c.Exec(ctx, `CREATE TABLE bare (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body TEXT)`)
			Expect(err).NotTo(HaveOccurred())
		}
		all[i] = c
	}
	body := strings.Repeat("x", contentBytes)
	return func(n int) {
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() {
				defer GinkgoRecover()
				for range n {
					_, err := c.Exec(ctx, `INSERT INTO bare (body) VALUES ($1)`, body)
					Expect(err).NotTo(HaveOccurred())
				}
			})
		}
		wg.Wait()
	}
}
