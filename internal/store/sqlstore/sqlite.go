package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
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
	// Executed is called for each statement that reads or writes, by several goroutines. It may be nil.
	Executed func(query string)
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
	db, err := sql.Open("sqlite", sqldb.SQLiteDSN(filepath.Join(o.Dir, databaseFile)))
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
		return nil, sqldb.Wrap(sqliteDialect, err)
	}
	for _, q := range sqliteDialect.Adopt {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return nil, sqldb.Wrap(sqliteDialect, err)
		}
	}
	s, err := newStore(sqliteDialect, o.Clock)
	if err != nil {
		return nil, err
	}
	connect := func(ctx context.Context, writes bool) (sqldb.Link, error) {
		return sqldb.ConnectSQLite(ctx, filepath.Join(o.Dir, databaseFile), writes)
	}
	if o.Executed != nil {
		connect = sqldb.Watched(connect, o.Executed)
	}
	s.db.Writer = txn.NewSerialWriters(s.db, connect, s.subscribers.Send)
	s.db.Readers = sqldb.NewReaders(o.Readers, func(ctx context.Context) (*sqldb.Conn, error) { return sqldb.Open(ctx, sqliteDialect, connect, false) })
	return s, nil
}

var sqliteDialect = &sqldb.Dialect{
	Name:   "sqlite",
	Goose:  goose.DialectSQLite3,
	Folder: "migrations/sqlite",

	Begin:        "BEGIN IMMEDIATE",
	Snapshot:     "BEGIN",
	Claimable:    queries.Claimable,
	ExtendFiring: queries.ExtendFiring,
	// The folder belongs to one process at a time, so holders of leases, firings and permits are gone, and their work
	// need not wait until the leases expire. Epochs stay, so that the next holder's is higher.
	Purge:      []string{queries.DropMessageUses},
	Adopt:      []string{queries.FreeLeases, queries.FreeFirings, queries.FreePermits},
	AddChanges: []string{queries.AddChanges, queries.RemoveChanges},
	Objects:    sqldb.ObjectsInSQLite,
	Mapped:     sqldb.MappedInSQLite,
	Keys:       `SELECT key FROM json_each(?)`,
	Search:     search.ByFTS5,
	Size:       `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`,
	Classify:   sqldb.ClassifySQLite,
}
