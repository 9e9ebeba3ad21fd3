package sqlstore_test

import (
	"context"
	"database/sql"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/pressly/goose/v3"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
)

var _ = storetest.DescribeMigrations("SQLite", func(context.Context) storetest.Migrating {
	dir := GinkgoT().TempDir()
	files, err := sqlstore.Migrations("sqlite")
	Expect(err).NotTo(HaveOccurred())
	db, err := sql.Open("sqlite", filepath.Join(dir, "skein.db"))
	Expect(err).NotTo(HaveOccurred())
	return storetest.Migrating{Dialect: goose.DialectSQLite3, Files: files, DB: db, Open: func() (store.Store, error) {
		return sqlstore.OpenSQLite(context.Background(), sqlstore.SQLiteOptions{Dir: dir})
	}}
})
