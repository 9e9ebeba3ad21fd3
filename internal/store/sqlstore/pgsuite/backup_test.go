package pgsuite

import (
	"context"
	"database/sql"
	"maps"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
)

// folder is a SQLite database in a temporary folder.
type folder struct{ dir string }

func (f folder) Open(c clock.PassiveClock) (store.Store, error) {
	return sqlstore.OpenSQLite(context.Background(), sqlstore.SQLiteOptions{Dir: f.dir, Clock: c})
}

func (folder) Exclusive() bool { return true }

func (f folder) SQL() (*sql.DB, error) { return sql.Open("sqlite", filepath.Join(f.dir, "skein.db")) }

func sqlite() storetest.Backend   { return folder{GinkgoT().TempDir()} }
func postgres() storetest.Backend { return newDatabase(context.Background()) }

var (
	_ = storetest.DescribeBackup("of PostgreSQL into PostgreSQL", false, maps.Keys(sqlstore.InBackups().Columns), postgres, postgres)
	_ = storetest.DescribeBackup("of SQLite into PostgreSQL", true, maps.Keys(sqlstore.InBackups().Columns), sqlite, postgres)
	_ = storetest.DescribeBackup("of PostgreSQL into SQLite", false, maps.Keys(sqlstore.InBackups().Columns), postgres, sqlite)
)

var _ = It("Each column of PostgreSQL is in a backup, or left out for a reason", Label("K8S-09"), func(ctx SpecContext) {
	db, err := sql.Open("pgx", newDatabase(ctx).url)
	Expect(err).NotTo(HaveOccurred())
	defer db.Close()
	storetest.CheckBackedUp(ctx, db, sqlstore.InBackups(), `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'`)
})
