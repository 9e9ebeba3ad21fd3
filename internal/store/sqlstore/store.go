// Package sqlstore keeps the store contract by a SQL database: SQLite at present. What differs between
// databases is in dialect.go and in the migrations; queries are in queries.go.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/pressly/goose/v3"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

// Store is a store.Store over a SQL database.
type Store struct {
	db      *sql.DB
	dialect *dialect
	clock   clock.PassiveClock
	writer  *writer
	readers *readers
	hints   hints

	closing sync.Once
	unlock  func() error
}

var _ store.Store = (*Store)(nil)

func open(ctx context.Context, db *sql.DB, d *dialect, c clock.PassiveClock, readers int) (*Store, error) {
	if c == nil {
		c = clock.RealClock{}
	}
	if readers == 0 {
		readers = 8
	}
	if err := migrate(ctx, db, d); err != nil {
		return nil, wrap(d, err)
	}
	for _, q := range d.adopt {
		if _, err := db.ExecContext(ctx, d.rebind(q)); err != nil {
			return nil, wrap(d, err)
		}
	}
	db.SetMaxIdleConns(0) // connections are held by the writer and the readers, or closed
	s := &Store{db: db, dialect: d, clock: c, unlock: func() error { return nil }}
	s.writer = newWriter(func(ctx context.Context) (*conn, error) { return newConn(ctx, db, d, true) }, s.now, s.hints.send)
	s.readers = newReaders(readers, func(ctx context.Context) (*conn, error) { return newConn(ctx, db, d, false) })
	return s, nil
}

// migrate brings the schema up to date. A schema of a newer release is refused rather than misread.
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

func (s *Store) now() int64 { return s.clock.Now().UnixMicro() }

// Ping tells whether the store can read and write, by doing both.
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

// Close waits for what is under way, and closes. Again is no error.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		err = errors.Join(s.writer.close(), s.readers.close(), s.db.Close(), s.unlock())
	})
	return err
}
