package sqldb

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteLink is a connection to SQLite with its prepared statements. It calls the library of SQLite's driver directly, not the driver: that asks for
// the name and the declared type of each column of each query, locks the connection in each call, and allocates memory for each text. In a turn this
// costs more than the statements (docs/adr/0030-what-a-turn-costs.md). One goroutine uses a link at a time.
type sqliteLink struct {
	tls   *libc.TLS
	db    uintptr // *sqlite3
	stmts map[string]*sqliteStmt
	// interruptible is set while the end of a context interrupts a query before its first row.
	interruptible bool
	texts         []textArg // of the statement that is bound now
}

var _ Link = (*sqliteLink)(nil)

// openSQLiteLink opens a file, and creates it if it does not exist.
func openSQLiteLink(file string) (*sqliteLink, error) {
	l := &sqliteLink{tls: libc.NewTLS(), stmts: map[string]*sqliteStmt{}}
	name, err := libc.CString(file)
	if err != nil {
		l.tls.Close()
		return nil, err
	}
	defer libc.Xfree(l.tls, name)
	// One goroutine at a time uses the link, so the library need not lock it.
	rc := l.pointer(&l.db, func(p uintptr) int32 {
		return sqlite3.Xsqlite3_open_v2(l.tls, name, p, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_CREATE|sqlite3.SQLITE_OPEN_NOMUTEX, 0)
	})
	if rc == sqlite3.SQLITE_OK {
		rc = sqlite3.Xsqlite3_extended_result_codes(l.tls, l.db, 1)
	}
	if rc != sqlite3.SQLITE_OK {
		err := l.failure(rc) // the connection has the message, also where it could not be opened
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// pointer calls a function that writes a pointer to an address, and stores that pointer in p.
func (l *sqliteLink) pointer(p *uintptr, call func(at uintptr) int32) int32 {
	cell := libc.Xcalloc(l.tls, 1, pointerSize)
	if cell == 0 {
		return sqlite3.SQLITE_NOMEM
	}
	defer libc.Xfree(l.tls, cell)
	rc := call(cell)
	*p = libc.AtomicLoadPUintptr(cell)
	return rc
}

// failure returns the error for a result code.
func (l *sqliteLink) failure(rc int32) error {
	e := &sqliteError{code: rc, text: libc.GoString(sqlite3.Xsqlite3_errstr(l.tls, rc))}
	if l.db != 0 {
		if text := libc.GoString(sqlite3.Xsqlite3_errmsg(l.tls, l.db)); text != e.text {
			e.text += ": " + text
		}
	}
	return e
}

// set executes a pragma. It is not kept as a prepared statement.
func (l *sqliteLink) set(ctx context.Context, pragma string) error {
	query := "PRAGMA " + pragma
	_, err := l.Exec(ctx, query, nil)
	if s := l.stmts[query]; s != nil {
		s.close()
		delete(l.stmts, query)
	}
	return err
}

func (l *sqliteLink) setInterruptible(on bool) { l.interruptible = on }

// interruptAgain is after what time a statement is interrupted again. The library forgets an interrupt that comes before the statement has begun, also while
// it compiles the statement anew.
const interruptAgain = 5 * time.Millisecond

// watch interrupts the statement that runs when the context ends, if the link is interruptible, until done is called.
func (l *sqliteLink) watch(ctx context.Context) (done func()) {
	if !l.interruptible || ctx.Done() == nil {
		return func() {}
	}
	over, interrupted := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		tls := libc.NewTLS() // that of the link belongs to the goroutine that uses it
		defer tls.Close()
		for {
			sqlite3.Xsqlite3_interrupt(tls, l.db)
			select {
			case <-over:
				return
			case <-time.After(interruptAgain):
			}
		}
	})
	return func() {
		close(over)
		if !stop() {
			<-interrupted
		}
	}
}

// bounds matches bounds of a query that are parameters.
var bounds = regexp.MustCompile(`\b(LIMIT|OFFSET) \?`)

// Compiled returns the text that SQLite compiles for a query. SQLite plans with the value of "LIMIT ?", so it compiles such a statement again each time
// that it is bound, which takes longer than most queries do. It does not look into a cast.
func Compiled(query string) string { return bounds.ReplaceAllString(query, "$1 CAST(? AS INTEGER)") }

// stmt returns the prepared statement of a query.
func (l *sqliteLink) stmt(query string) (*sqliteStmt, error) {
	if s := l.stmts[query]; s != nil {
		return s, nil
	}
	text, err := libc.CString(Compiled(query))
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(l.tls, text)
	s := &sqliteStmt{link: l}
	rc := l.pointer(&s.handle, func(p uintptr) int32 {
		return sqlite3.Xsqlite3_prepare_v3(l.tls, l.db, text, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, p, 0)
	})
	if rc != sqlite3.SQLITE_OK {
		return nil, l.failure(rc)
	}
	if s.handle == 0 {
		return nil, fmt.Errorf("there is no statement in %q", query)
	}
	s.params = int(sqlite3.Xsqlite3_bind_parameter_count(l.tls, s.handle))
	s.columns = int(sqlite3.Xsqlite3_column_count(l.tls, s.handle))
	l.stmts[query] = s
	return s, nil
}

// begin binds a statement and executes its first step. The caller resets the statement unless begin returns an error.
func (l *sqliteLink) begin(ctx context.Context, query string, args []any) (s *sqliteStmt, row bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if s, err = l.stmt(query); err != nil {
		return nil, false, err
	}
	if err := s.bind(args); err != nil {
		return nil, false, err
	}
	defer l.watch(ctx)()
	row, err = s.step()
	if err != nil {
		_ = s.reset() // it says the same again
		if ended := ctx.Err(); ended != nil && isInterrupt(err) {
			err = ended
		}
	}
	return s, row, err
}

func (l *sqliteLink) Exec(ctx context.Context, query string, args []any) (int64, error) {
	s, row, err := l.begin(ctx, query, args)
	if err != nil {
		return 0, err
	}
	for row && err == nil {
		row, err = s.step()
	}
	n := sqlite3.Xsqlite3_changes64(l.tls, l.db)
	if end := s.reset(); err == nil {
		err = end
	}
	return n, err
}

func (l *sqliteLink) Queue(ctx context.Context, query string, args []any) error {
	_, err := l.Exec(ctx, query, args)
	return err
}

func (l *sqliteLink) query(ctx context.Context, query string, args []any) (RowSet, error) {
	s, row, err := l.begin(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return &sqliteRows{ctx: ctx, stmt: s, first: true, more: row}, nil
}

func (l *sqliteLink) Close() error {
	for _, s := range l.stmts {
		s.close()
	}
	l.stmts = nil
	rc := sqlite3.Xsqlite3_close_v2(l.tls, l.db)
	l.tls.Close()
	if rc != sqlite3.SQLITE_OK {
		return &sqliteError{code: rc, text: "close the database"}
	}
	return nil
}

// sqliteRows are the rows of one result.
type sqliteRows struct {
	ctx   context.Context
	stmt  *sqliteStmt
	first bool // the first step is executed, and no row is read yet
	more  bool
	err   error
}

func (r *sqliteRows) Next() bool {
	if r.err == nil {
		r.err = r.ctx.Err()
	}
	if r.err == nil && r.more && !r.first {
		r.more, r.err = r.stmt.step()
	}
	r.first = false
	return r.err == nil && r.more
}

func (r *sqliteRows) Err() error { return r.err }

func (r *sqliteRows) Close() error { return r.stmt.reset() }

func (r *sqliteRows) Scan(dst ...any) error {
	if len(dst) != r.stmt.columns {
		return fmt.Errorf("the row has %d columns, %d are read", r.stmt.columns, len(dst))
	}
	for i, d := range dst {
		if err := r.stmt.column(i, d); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}
