package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// settings are the pragmas of each connection: a write-ahead log that is synced at each commit. No other process opens the file, so the busy
// timeout only covers checkpoints.
var settings = []string{
	"busy_timeout(5000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)", "temp_store(memory)", "journal_size_limit(67108864)",
}

// SQLiteDSN is the name under which SQLite's driver, which the migrations use, opens a file with the settings of the store.
func SQLiteDSN(file string) string {
	q := url.Values{"_pragma": settings}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// ConnectSQLite opens a connection to a file.
func ConnectSQLite(ctx context.Context, file string, writes bool) (Link, error) {
	l, err := openSQLiteLink(file)
	if err != nil {
		return nil, err
	}
	if err := setupSQLite(ctx, l, writes); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func setupSQLite(ctx context.Context, l *sqliteLink, writes bool) error {
	pragmas := []string{"cache_size(-4000)", "query_only(1)"}
	if writes {
		pragmas = []string{"cache_size(-32000)", "wal_autocheckpoint(4000)"}
	}
	for _, p := range slices.Concat(settings, pragmas) {
		if err := l.set(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// sqliteError is an error of SQLite's library. code is its extended result code.
type sqliteError struct {
	code int32
	text string
}

func (e *sqliteError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

// isInterrupt reports whether a statement was interrupted.
func isInterrupt(err error) bool {
	var e *sqliteError
	return errors.As(err, &e) && e.code&0xff == sqlite3.SQLITE_INTERRUPT
}

// ClassifySQLite returns what an error of SQLite's driver means.
func ClassifySQLite(err error) Class {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return Unavailable
	}
	var own *sqliteError
	var e *sqlite.Error // of the driver
	var code int
	switch {
	case errors.As(err, &own):
		code = int(own.code)
	case errors.As(err, &e):
		code = e.Code()
	default:
		return Ordinary
	}
	switch code & 0xff { // the primary code
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM:
		return Unavailable
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return Broken
	}
	return Ordinary
}
