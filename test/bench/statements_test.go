package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// One thread makes its turns by itself here, so that no two transactions share a commit of the database.
var _ = Describe("A turn", func() {
	It("has few transactions and statements", func(ctx SpecContext) {
		const turns = 200
		db, err := sql.Open("sqlite", ":memory:")
		Expect(err).NotTo(HaveOccurred())
		counted := &countingDriver{Driver: db.Driver()}
		Expect(db.Close()).To(Succeed())
		dir := GinkgoT().TempDir()
		s, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: filepath.Join(dir, "store"), Driver: counted})
		Expect(err).NotTo(HaveOccurred())
		w, err := enginetest.NewOn(s, dir)
		Expect(err).NotTo(HaveOccurred())
		w.Definitions.Put("agent", enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))
		b, _ := startEngine(ctx, w, func(*engine.Options) {})
		ids := b.threads(ctx, 1)
		b.turns(ctx, ids, 2) // what is made once
		before := counted.statements()
		b.turns(ctx, ids, turns)
		after := counted.statements()
		each := func(of func(statements) int64) float64 { return float64(of(after)-of(before)) / turns }
		figure("a turn, SQLite", "%.2f transactions (goal 5) of %.2f statements that write (goal 18); %.2f that read, with those of this bench",
			each(func(s statements) int64 { return s.commits }), each(func(s statements) int64 { return s.writes }), each(func(s statements) int64 { return s.reads }))
	}, NodeTimeout(5*time.Minute))
})

// statements are how many were executed.
type statements struct{ commits, writes, reads int64 }

// countingDriver counts the statements of the connections that it opens.
type countingDriver struct {
	driver.Driver
	commits, writes, reads atomic.Int64
}

func (d *countingDriver) statements() statements {
	return statements{commits: d.commits.Load(), writes: d.writes.Load(), reads: d.reads.Load()}
}

func (d *countingDriver) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: c, driver: d}, nil
}

type countedConn struct {
	driver.Conn
	driver *countingDriver
}

func (c *countedConn) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	counted := &countedStmt{Stmt: s, exec: &c.driver.writes, query: &c.driver.reads}
	switch word, _, _ := strings.Cut(strings.TrimSpace(query), " "); word {
	case "COMMIT":
		counted.exec = &c.driver.commits
	case "BEGIN", "ROLLBACK", "PRAGMA":
		counted.exec = new(atomic.Int64)
	case "INSERT", "UPDATE", "DELETE":
		counted.query = &c.driver.writes // RETURNING
	}
	return counted, nil
}

// countedStmt counts what it executes: exec is the counter where no rows are asked for, and query where they are.
type countedStmt struct {
	driver.Stmt
	exec, query *atomic.Int64
}

func (s *countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.exec.Add(1)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *countedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.query.Add(1)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
