package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLiteDSN opens a file with a write-ahead log that is synced at each commit. No other process opens it, so the busy
// timeout only covers checkpoints.
func SQLiteDSN(file string) string {
	q := url.Values{"_pragma": {
		"busy_timeout(5000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)", "temp_store(memory)",
		"journal_size_limit(67108864)",
	}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// ConnectSQLite opens a connection to a file.
func ConnectSQLite(ctx context.Context, d driver.Driver, file string, writes bool) (Link, error) {
	c, err := d.Open(SQLiteDSN(file))
	if err != nil {
		return nil, err
	}
	l := newSQLiteLink(c)
	if err := setupSQLite(ctx, l, writes); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func setupSQLite(ctx context.Context, l *sqliteLink, writes bool) error {
	pragmas := []string{"PRAGMA cache_size = -4000", "PRAGMA query_only = 1"}
	if writes {
		pragmas = []string{"PRAGMA cache_size = -32000", "PRAGMA wal_autocheckpoint = 2000"}
	}
	for _, p := range pragmas {
		if _, err := l.Exec(ctx, p, nil); err != nil {
			return err
		}
	}
	return nil
}

// ClassifySQLite returns what an error of SQLite's driver means.
func ClassifySQLite(err error) Class {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return Unavailable
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return Ordinary
	}
	switch e.Code() & 0xff { // the primary code
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM:
		return Unavailable
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return Broken
	}
	return Ordinary
}
