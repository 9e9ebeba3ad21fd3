// Package sqlstore implements the store contract with a SQL database: SQLite or PostgreSQL. What differs between
// databases is in dialect.go and in the migrations; the queries are in queries.go and the files queries_*.go.
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
)

// db is what every part of the store reads and writes with.
type db struct {
	dialect *dialect
	clock   clock.PassiveClock
	writer  *writers
	readers *readers
}

// newDB returns a db without writers and readers. A nil clock stands for the real one.
func newDB(d *dialect, c clock.PassiveClock) *db {
	if c == nil {
		c = clock.RealClock{}
	}
	return &db{dialect: d, clock: c}
}

// now returns the present time in microseconds.
func (d *db) now() int64 { return d.clock.Now().UnixMicro() }

// Store is a store.Store over a SQL database.
type Store struct {
	*db
	subscribers

	closing sync.Once
	closers []func() error // run by Close, in this order
}

var _ store.Store = (*Store)(nil)

func newStore(d *dialect, c clock.PassiveClock) *Store {
	return &Store{db: newDB(d, c)}
}

//go:embed migrations
var migrations embed.FS

// Migrations returns the migrations of a kind of database, sqlite or postgres, in goose's form.
func Migrations(kind string) (fs.FS, error) {
	d := sqliteDialect
	if kind == postgresDialect.name {
		d = postgresDialect
	}
	return fs.Sub(migrations, d.folder)
}

// migrate brings the schema up to date. It refuses a schema of a newer release rather than misread it.
func migrate(ctx context.Context, db *sql.DB, d *dialect) error {
	files, err := fs.Sub(migrations, d.folder)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(d.goose, db, files, goose.WithDisableGlobalRegistry(true))
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

// Ping implements store.Store. It writes and reads a probe.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(t.ctx, qWriteProbe, t.now)
		return err
	}); err != nil {
		return err
	}
	var at int64
	return s.readers.read(ctx, func(c *conn) error { return c.row(ctx, qReadProbe, nil, &at) })
}

// Close implements store.Store. It waits for reads and writes in progress. Repeating it is no error.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		err = errors.Join(s.writer.close(), s.readers.close())
		for _, end := range s.closers {
			err = errors.Join(err, end())
		}
	})
	return err
}
