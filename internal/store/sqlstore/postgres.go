package sqlstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/notify"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// PostgresOptions are the options of OpenPostgres.
type PostgresOptions struct {
	// URL of the database: postgres://user:password@host:port/name?sslmode=verify-full, or key=value pairs.
	URL string
	// Clock is the source of time. When nil, it is the database's clock, so that replicas agree on it.
	Clock clock.PassiveClock
	// Readers is the largest number of connections that read; 8 when 0.
	Readers int
	// Writers is the number of connections that write; 4 when 0.
	Writers int
	// Log tells of migrations.
	Log logr.Logger
}

// OpenPostgres opens the store in a PostgreSQL database, which it may share with other replicas. It creates or migrates
// the schema.
func OpenPostgres(ctx context.Context, o PostgresOptions) (*Store, error) {
	if o.URL == "" {
		return nil, errors.New("the PostgreSQL store needs the database's URL")
	}
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		// The error of pgx may quote the URL, which contains a password.
		return nil, errors.New("the database URL is not a PostgreSQL URL: it must look like postgres://user:password@host:5432/name?sslmode=verify-full")
	}
	sqldb.Configure(config)
	files, err := Migrations(postgresDialect.Name)
	if err != nil {
		return nil, err
	}
	if err := MigratePostgres(ctx, config, files, o.Log); err != nil {
		return nil, fmt.Errorf("open the database %s on %s: %w", config.Database, config.Host, sqldb.Wrap(postgresDialect, err))
	}
	shared := &sqldb.Clock{}
	if o.Clock == nil {
		o.Clock = shared
	}
	s, err := newStore(postgresDialect, o.Clock)
	if err != nil {
		return nil, err
	}
	lost := &atomic.Int64{}
	connect := func(ctx context.Context, writes bool) (*sqldb.Conn, error) {
		return sqldb.ConnectPostgres(ctx, postgresDialect, config, shared, lost, writes)
	}
	if err := adopt(ctx, connect); err != nil {
		return nil, fmt.Errorf("open the database %s on %s: %w", config.Database, config.Host, err)
	}
	// The caller subscribes at once, so that it hears when the notifications begin.
	notices := notify.Start(config, shared, lost, s.subscribers.Send)
	s.closers = append(s.closers, notices.Close)
	send := func(notifications []store.Notification) {
		s.subscribers.Send(notifications)
		notices.Add(notifications)
	}
	if o.Writers == 0 {
		o.Writers = 4
	}
	s.db.Writer = txn.NewPipelineWriters(s.db, o.Writers, connect, send)
	s.db.Readers = sqldb.NewReaders(o.Readers, func(ctx context.Context) (*sqldb.Conn, error) { return connect(ctx, false) })
	return s, nil
}

// adopt runs what a database needs once when a replica opens it. On a database that was moved it may take minutes.
func adopt(ctx context.Context, connect func(ctx context.Context, writes bool) (*sqldb.Conn, error)) error {
	c, err := connect(ctx, true)
	if err != nil {
		return err
	}
	c.Patient()
	for _, q := range postgresDialect.Adopt {
		if _, err := c.Exec(ctx, q); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}

// Away reports whether an error of OpenPostgres says that the database cannot be reached or used at present. A user or a database that the
// server does not know is no such error: a person has to act.
func Away(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) && (strings.HasPrefix(e.Code, "28") || strings.HasPrefix(e.Code, "3D")) {
		return false
	}
	var certificate *tls.CertificateVerificationError
	return errors.Is(err, store.ErrUnavailable) && !errors.As(err, &certificate)
}

var postgresDialect = &sqldb.Dialect{
	Name:     "postgres",
	Goose:    goose.DialectPostgres,
	Folder:   "migrations/postgres",
	Begin:    "BEGIN",
	Snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
	Pausable: "SET LOCAL idle_in_transaction_session_timeout = 0",
	// Concurrent claims skip each other's rows.
	Claimable:    queries.Claimable + ` FOR UPDATE SKIP LOCKED`,
	ExtendFiring: queries.ExtendUnlocked,
	Lock:         `SELECT 1 FROM pg_advisory_xact_lock(hashtextextended(?, 0))`,
	Purge: []string{`DELETE FROM message WHERE thread = ?`, `DELETE FROM log WHERE thread = ?`, `DELETE FROM inbox WHERE thread = ?`,
		`DELETE FROM inbox_key WHERE thread = ?`, `DELETE FROM lease WHERE thread = ?`, queries.DropMessageUses},
	Adopt:            []string{queries.AdoptLifecycle},
	AddChanges:       []string{queries.AddRemoveChanges},
	Objects:          sqldb.ObjectsInPostgres,
	Mapped:           sqldb.MappedInPostgres,
	Keys:             `SELECT jsonb_object_keys(CAST(CAST(? AS TEXT) AS jsonb)) AS key`,
	ManyWriters:      true,
	Search:           search.ByTSQuery,
	SearchesByItself: true,
	Size:             `SELECT pg_database_size(current_database())`,
	EstimateRows:     queries.EstimateTables(),
	Classify:         sqldb.ClassifyPostgres,
}
