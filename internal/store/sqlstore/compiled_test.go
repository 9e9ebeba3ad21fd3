package sqlstore_test

import (
	"path/filepath"
	"strconv"
	"unsafe"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// SQLite compiles a prepared statement again each time that a parameter changes which it has compared with the constant of a partial index:
// "namespace = ?" where an index has "WHERE namespace = ”". That takes longer than the query.
var _ = Describe("SQLite's statements", func() {
	It("are not compiled again for other parameters", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		s := openSQLite(ctx, dir)
		Expect(s.Close()).To(Succeed()) // the schema is there
		tls := libc.NewTLS()
		defer tls.Close()
		file, err := libc.CString(filepath.Join(dir, "skein.db"))
		Expect(err).NotTo(HaveOccurred())
		defer libc.Xfree(tls, file)
		out := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(uintptr(0))))
		defer libc.Xfree(tls, out)
		pointer := func() uintptr { return libc.AtomicLoadPUintptr(out) }
		Expect(sqlite3.Xsqlite3_open_v2(tls, file, out, sqlite3.SQLITE_OPEN_READONLY, 0)).To(BeEquivalentTo(sqlite3.SQLITE_OK))
		db := pointer()
		defer sqlite3.Xsqlite3_close_v2(tls, db)

		for name, q := range sqlstore.Queries {
			text, err := libc.CString(sqldb.Compiled(q.Text))
			Expect(err).NotTo(HaveOccurred())
			Expect(sqlite3.Xsqlite3_prepare_v2(tls, db, text, -1, out, 0)).To(BeEquivalentTo(sqlite3.SQLITE_OK), name)
			libc.Xfree(tls, text)
			statement := pointer()
			for round := range 3 {
				value, err := libc.CString(strconv.Itoa(100 + round))
				Expect(err).NotTo(HaveOccurred())
				for i := range q.Args {
					Expect(sqlite3.Xsqlite3_bind_text(tls, statement, int32(i+1), value, -1, sqlite3.SQLITE_TRANSIENT)).To(BeEquivalentTo(sqlite3.SQLITE_OK), name)
				}
				sqlite3.Xsqlite3_step(tls, statement) // a value of the wrong type is an error of the statement, which does not matter here
				sqlite3.Xsqlite3_reset(tls, statement)
				libc.Xfree(tls, value)
			}
			Expect(sqlite3.Xsqlite3_stmt_status(tls, statement, sqlite3.SQLITE_STMTSTATUS_REPREPARE, 0)).To(BeZero(), "%s: %s", name, q.Text)
			sqlite3.Xsqlite3_finalize(tls, statement)
		}
	})
})
