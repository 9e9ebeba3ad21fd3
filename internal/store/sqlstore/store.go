// Package sqlstore implements the store contract with a SQL database: SQLite or PostgreSQL. It opens the database,
// carries out operations (apply.go), and puts the store together from the packages of the tables. What differs between
// databases is in sqlite.go, in postgres.go and in the migrations.
package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/pressly/goose/v3"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/backup"
	"github.com/skein-dev/skein/internal/store/sqlstore/env"
	"github.com/skein-dev/skein/internal/store/sqlstore/eventlog"
	"github.com/skein-dev/skein/internal/store/sqlstore/files"
	"github.com/skein-dev/skein/internal/store/sqlstore/firings"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/leases"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/notify"
	"github.com/skein-dev/skein/internal/store/sqlstore/permits"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/threads"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
	"github.com/skein-dev/skein/internal/store/sqlstore/values"
)

// The parts of a Store. Each holds the methods of its tables.
type (
	threadStore   = threads.Store
	messageStore  = messages.Store
	logStore      = eventlog.Store
	searchStore   = search.Store
	runStore      = runs.Store
	inboxStore    = inbox.Store
	fileStore     = files.Store
	valueStore    = values.Store
	envStore      = env.Store
	relationStore = relations.Store
	leaseStore    = leases.Store
	permitStore   = permits.Store
	firingStore   = firings.Store
	backupStore   = backup.Store
)

// Store is a store.Store over a SQL database.
type Store struct {
	threadStore
	messageStore
	logStore
	searchStore
	runStore
	inboxStore
	fileStore
	valueStore
	envStore
	relationStore
	leaseStore
	permitStore
	firingStore
	backupStore

	db          *txn.DB
	subscribers notify.Subscribers

	closing sync.Once
	closers []func() error // run by Close, in this order
}

var _ store.Store = (*Store)(nil)

func newStore(d *sqldb.Dialect, c clock.PassiveClock) *Store {
	db := txn.NewDB(d, c)
	return &Store{
		db:            db,
		threadStore:   threads.Store{DB: db},
		messageStore:  messages.Store{DB: db},
		logStore:      eventlog.Store{DB: db},
		searchStore:   search.Store{DB: db},
		runStore:      runs.Store{DB: db},
		inboxStore:    inbox.Store{DB: db},
		fileStore:     files.Store{DB: db},
		valueStore:    values.Store{DB: db},
		envStore:      env.Store{DB: db},
		relationStore: relations.Store{DB: db},
		leaseStore:    leases.Store{DB: db},
		permitStore:   permits.Store{DB: db},
		firingStore:   firings.Store{DB: db},
		backupStore:   backup.Store{DB: db},
	}
}

//go:embed migrations
var migrations embed.FS

// Migrations returns the migrations of a kind of database, sqlite or postgres, in goose's form.
func Migrations(kind string) (fs.FS, error) {
	d := sqliteDialect
	if kind == postgresDialect.Name {
		d = postgresDialect
	}
	return fs.Sub(migrations, d.Folder)
}

// migrate brings the schema up to date. It refuses a schema of a newer release rather than misread it.
func migrate(ctx context.Context, db *sql.DB, d *sqldb.Dialect) error {
	files, err := fs.Sub(migrations, d.Folder)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(d.Goose, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	sources := p.ListSources()
	if known := sources[len(sources)-1].Version; have > known {
		return fmt.Errorf("the database was written by a newer release (schema %d, this one knows %d): run that release, or restore a backup", have, known)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	return nil
}

// Subscribe implements store.Store.
func (s *Store) Subscribe(fn func(store.Notification)) (stop func()) {
	return s.subscribers.Subscribe(fn)
}

// Ping implements store.Store. It writes and reads a probe.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.Writer.Do(ctx, func(t *txn.Tx) error {
		_, err := t.Exec(t.Ctx, queries.WriteProbe, t.Now)
		return err
	}); err != nil {
		return err
	}
	var at int64
	return s.db.Readers.Row(ctx, queries.ReadProbe, nil, &at)
}

// Close implements store.Store. It waits for reads and writes in progress. Repeating it is no error.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		err = errors.Join(s.db.Writer.Close(), s.db.Readers.Close())
		for _, end := range s.closers {
			err = errors.Join(err, end())
		}
	})
	return err
}
