package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"
	"k8s.io/utils/clock"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// databaseFile is the name of the database in the data folder.
const databaseFile = "skein.db"

// SQLiteOptions are the options of OpenSQLite.
type SQLiteOptions struct {
	// Dir is the data folder. It is created when missing, and belongs to one process at a time.
	Dir string
	// Clock is the source of time; the real clock when nil.
	Clock clock.PassiveClock
	// Readers is the largest number of connections that read; 8 when 0.
	Readers int
}

// OpenSQLite opens the store in a data folder. It creates or migrates the database, and fails when another process uses
// the folder.
func OpenSQLite(ctx context.Context, o SQLiteOptions) (*Store, error) {
	if o.Dir == "" {
		return nil, errors.New("the SQLite store needs a data folder: give --data-dir")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	lock, err := lockFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", sqliteDSN(filepath.Join(o.Dir, databaseFile)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database in %s: %w", o.Dir, err), lock.Close())
	}
	db.SetMaxIdleConns(0) // db is only for the migrations; the writer and the readers have their own connections
	s, err := openSQLite(ctx, db, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database in %s: %w", o.Dir, err), db.Close(), lock.Close())
	}
	s.closers = append(s.closers, db.Close, lock.Close)
	return s, nil
}

func openSQLite(ctx context.Context, db *sql.DB, o SQLiteOptions) (*Store, error) {
	if err := migrate(ctx, db, sqliteDialect); err != nil {
		return nil, wrap(sqliteDialect, err)
	}
	for _, q := range sqliteDialect.adopt {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return nil, wrap(sqliteDialect, err)
		}
	}
	s := newStore(sqliteDialect, o.Clock)
	connect := func(ctx context.Context, writes bool) (link, error) {
		c, err := db.Driver().Open(sqliteDSN(filepath.Join(o.Dir, databaseFile)))
		if err != nil {
			return nil, err
		}
		l := newSQLiteLink(c)
		if err := setupSQLite(ctx, l, writes); err != nil {
			return nil, errors.Join(err, l.close())
		}
		return l, nil
	}
	s.writer = newSerialWriters(s.db, connect, s.send)
	s.readers = newReaders(o.Readers, func(ctx context.Context) (*conn, error) { return newConn(ctx, sqliteDialect, connect, false) })
	return s, nil
}

// sqliteDSN opens a file with a write-ahead log that is synced at each commit. No other process opens it, so the busy
// timeout only covers checkpoints.
func sqliteDSN(file string) string {
	q := url.Values{"_pragma": {
		"busy_timeout(5000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)", "temp_store(memory)",
		"journal_size_limit(67108864)",
	}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String()
}

var sqliteDialect = &dialect{
	name:   "sqlite",
	goose:  goose.DialectSQLite3,
	folder: "migrations/sqlite",

	begin:     "BEGIN IMMEDIATE",
	snapshot:  "BEGIN",
	claimable: qClaimable,
	// The folder belongs to one process at a time, so holders of leases, firings and permits are gone, and their work
	// need not wait until the leases expire. Epochs stay, so that the next holder's is higher.
	adopt:    []string{qFreeLeases, qFreeFirings, qFreePermits},
	search:   searchByFTS5,
	classify: classifySQLite,
}

func setupSQLite(ctx context.Context, l *sqliteLink, writes bool) error {
	pragmas := []string{"PRAGMA cache_size = -4000", "PRAGMA query_only = 1"}
	if writes {
		pragmas = []string{"PRAGMA cache_size = -32000", "PRAGMA wal_autocheckpoint = 2000"}
	}
	for _, p := range pragmas {
		if _, err := l.exec(ctx, p, nil); err != nil {
			return err
		}
	}
	return nil
}

func classifySQLite(err error) class {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return unavailable
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return ordinary
	}
	switch e.Code() & 0xff { // the primary code
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM:
		return unavailable
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return broken
	}
	return ordinary
}
