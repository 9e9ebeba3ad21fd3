package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

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

// schema is the schema of one database, and the migrations that this release knows.
type schema struct {
	db    *sql.DB
	files fs.FS
	goose *goose.Provider
	log   logr.Logger
}

func newSchema(db *sql.DB, d *sqldb.Dialect, files fs.FS, log logr.Logger) (*schema, error) {
	p, err := goose.NewProvider(d.Goose, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return &schema{db: db, files: files, goose: p, log: log}, nil
}

// next returns the first migration that the database does not have, or nil when there is none. A schema of a newer release has
// none, if this release can use it (docs/adr/0053-neighbouring-versions.md); otherwise next returns an error that says so.
func (s *schema) next(ctx context.Context) (*goose.Source, error) {
	have, err := s.goose.GetDBVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	sources := s.goose.ListSources()
	known := sources[len(sources)-1].Version
	if have > known {
		var minimum int64
		if err := s.db.QueryRowContext(ctx, queries.SchemaReader).Scan(&minimum); err != nil {
			return nil, fmt.Errorf("read which releases can use the schema: %w", err)
		}
		if known < minimum {
			return nil, outdated(have, minimum, known)
		}
		s.log.Info("The database has the schema of a newer release, which this release can use too", "schema", have, "known", known)
		return nil, nil
	}
	for _, source := range sources {
		if source.Version > have {
			return source, nil
		}
	}
	_, err = s.goose.Up(ctx) // fails when an earlier migration is missing
	return nil, err
}

// knownSchema returns the version of the newest migration of a kind of database.
func knownSchema(d *sqldb.Dialect) (known int64, err error) {
	files, err := fs.ReadDir(migrations, d.Folder)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			return 0, err
		}
		known = max(known, version)
	}
	return known, nil
}

// outdated returns the error of a release that cannot use the schema.
func outdated(have, minimum, known int64) error {
	return fmt.Errorf("the database was migrated by a newer release: its schema %d is for releases that know schema %d or later, and this one knows %d: "+
		"run the newer release, or restore a backup from before the update", have, minimum, known)
}

// migrate brings the schema of a database up to date that no other process uses.
func migrate(ctx context.Context, db *sql.DB, d *sqldb.Dialect) error {
	files, err := fs.Sub(migrations, d.Folder)
	if err != nil {
		return err
	}
	s, err := newSchema(db, d, files, logr.Discard())
	if err != nil {
		return err
	}
	if next, err := s.next(ctx); next == nil || err != nil {
		return err
	}
	if _, err := s.goose.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	return nil
}

const (
	// migrationLock is the advisory lock that keeps replicas that start together from migrating at the same time. The
	// number is one that other users of the database are unlikely to use.
	migrationLock = 0x736b65696e // "skein"
	// lockPause is the pause before the lock is tried again, or a migration that found a table in use.
	lockPause = time.Second
	// tablePatience is how long a migration waits for a table that others use. All who come after it wait behind it, so it gives up soon
	// and tries again.
	tablePatience = 2 * time.Second
)

// MigratePostgres brings the schema of a PostgreSQL database up to date while other replicas use it. One replica at a time migrates; the
// others wait for it.
func MigratePostgres(ctx context.Context, config *pgx.ConnConfig, files fs.FS, log logr.Logger) (err error) {
	patient := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, patient.Close()) }()
	s, err := newSchema(patient, postgresDialect, files, log)
	if err != nil {
		return err
	}
	hasty := config.Copy()
	hasty.RuntimeParams["lock_timeout"] = fmt.Sprint(tablePatience.Milliseconds())
	db := stdlib.OpenDB(*hasty)
	defer func() { err = errors.Join(err, db.Close()) }()
	quick, err := newSchema(db, postgresDialect, files, log)
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	for {
		next, err := s.next(ctx)
		if next == nil || err != nil {
			return err
		}
		if err := s.apply(ctx, quick, next); err != nil {
			return err
		}
	}
}

// lock waits until no other replica migrates. It asks again and again instead of waiting in the database: a statement that waits is
// a transaction, which building an index concurrently would wait for in turn.
func (s *schema) lock(ctx context.Context) (unlock func() error, err error) {
	session, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	// The end of the session also releases the lock.
	unlock = func() error {
		_, err := session.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrationLock))
		return errors.Join(err, session.Close())
	}
	for waited := false; ; waited = true {
		var got bool
		if err := session.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrationLock)).Scan(&got); err != nil {
			return nil, errors.Join(err, session.Close())
		}
		if got {
			return unlock, nil
		}
		if !waited {
			s.log.Info("Another replica migrates the database: waiting for it")
		}
		if err := pause(ctx); err != nil {
			return nil, errors.Join(err, session.Close())
		}
	}
}

// apply applies the next migration. One in a transaction is applied by quick.
func (s *schema) apply(ctx context.Context, quick *schema, next *goose.Source) error {
	text, err := fs.ReadFile(s.files, next.Path)
	if err != nil {
		return err
	}
	p := quick.goose
	if bytes.Contains(text, []byte("+goose NO TRANSACTION")) {
		p = s.goose
	}
	began := time.Now()
	for {
		_, err := p.UpByOne(ctx)
		var busy *pgconn.PgError
		if errors.As(err, &busy) && busy.Code == "55P03" && p == quick.goose {
			s.log.Info("A migration waits for a table that is in use", "schema", next.Version)
			if err := pause(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("migrate the schema: %w", err)
		}
		s.log.Info("Migrated the database", "schema", next.Version, "migration", next.Path, "took", time.Since(began).Round(time.Millisecond).String())
		return nil
	}
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(lockPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
