package sqlstore_test

import (
	"database/sql"
	"maps"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
)

var _ = storetest.DescribeBackup("of SQLite into SQLite", true, maps.Keys(sqlstore.InBackups().Columns), newFolder, newFolder)

var _ = It("Each column of SQLite is in a backup, or left out for a reason", Label("K8S-09"), func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Close()).To(Succeed())
	db, err := sql.Open("sqlite", filepath.Join(dir, "skein.db"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(db.Close)
	storetest.CheckBackedUp(ctx, db, sqlstore.InBackups(), `SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'`)
})
