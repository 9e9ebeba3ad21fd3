package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

const (
	connectTimeout = 5 * time.Second
	closeTimeout   = time.Second
	// answerTimeout is how long a whole transaction may take before the connection counts as lost.
	answerTimeout = 30 * time.Second

	commit = "COMMIT"
)

// errNotCommitted means that the transaction had failed earlier without notice.
var errNotCommitted = errors.New("the database rolled the transaction back")

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
	configure(config)
	if err := migratePostgres(ctx, config); err != nil {
		return nil, fmt.Errorf("open the database %s on %s: %w", config.Database, config.Host, wrap(postgresDialect, err))
	}
	shared := &databaseClock{}
	if o.Clock == nil {
		o.Clock = shared
	}
	s := newStore(postgresDialect, o.Clock)
	lost := &atomic.Int64{}
	notices := startNotices(config, shared, lost, s.send)
	s.closers = append(s.closers, notices.close)
	told := func(notifications []store.Notification) {
		s.send(notifications)
		notices.add(notifications)
	}
	connect := func(ctx context.Context, writes bool) (*conn, error) {
		return connectPostgres(ctx, postgresDialect, config, shared, lost, writes)
	}
	if o.Writers == 0 {
		o.Writers = 4
	}
	s.writer = newPipelineWriters(s.db, o.Writers, connect, told)
	s.readers = newReaders(o.Readers, func(ctx context.Context) (*conn, error) { return connect(ctx, false) })
	return s, nil
}

// configure sets what the store needs of each connection.
func configure(c *pgx.ConnConfig) {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	host, _ := os.Hostname()
	for name, value := range map[string]string{
		"application_name": "skein " + host,
		// A replica that hangs in the middle of a transaction must not lock its threads' rows for ever.
		"idle_in_transaction_session_timeout": "10s",
		// A replica that vanishes, for example with its node, is noticed within half a minute.
		"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	} {
		if _, set := c.RuntimeParams[name]; !set {
			c.RuntimeParams[name] = value
		}
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
}

// connectPostgres opens a connection. lost counts the lost connections of the store.
func connectPostgres(ctx context.Context, d *dialect, config *pgx.ConnConfig, shared *databaseClock, lost *atomic.Int64, writes bool) (*conn, error) {
	born := lost.Load()
	c, err := newConn(ctx, d, func(ctx context.Context, writes bool) (link, error) {
		return linkPostgres(ctx, config, shared, writes)
	}, writes)
	if err != nil {
		return nil, err
	}
	c.age, c.born = lost, born
	return c, nil
}

func linkPostgres(ctx context.Context, config *pgx.ConnConfig, shared *databaseClock, writes bool) (link, error) {
	db, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := shared.read(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	if writes {
		// Acknowledged writes must be on disk, whatever the server's default is. A stricter setting stays.
		if _, err := db.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`); err != nil {
			return nil, errors.Join(err, db.Close(ctx))
		}
	}
	return &pgxLink{db: db}, nil
}

// migrationLock is the advisory lock that keeps replicas that start together from migrating at the same time. The
// number is one that other users of the database are unlikely to use.
const migrationLock = 0x736b65696e // "skein"

func migratePostgres(ctx context.Context, config *pgx.ConnConfig) (err error) {
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	lock, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // the end of the session also releases the lock
	if _, err := lock.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return err
	}
	defer func() {
		_, end := lock.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrationLock))
		err = errors.Join(err, end)
	}()
	return migrate(ctx, db, postgresDialect)
}

var postgresDialect = &dialect{
	name:     "postgres",
	goose:    goose.DialectPostgres,
	folder:   "migrations/postgres",
	begin:    "BEGIN",
	snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
	// Concurrent claims skip each other's rows.
	claimable: qClaimable + ` FOR UPDATE SKIP LOCKED`,
	purge: []string{`DELETE FROM message WHERE thread = ?`, `DELETE FROM log WHERE thread = ?`, `DELETE FROM inbox WHERE thread = ?`,
		`DELETE FROM inbox_key WHERE thread = ?`, `DELETE FROM lease WHERE thread = ?`},
	manyWriters:      true,
	search:           searchByTSQuery,
	searchesByItself: true,
	classify:         classifyPostgres,
}

func classifyPostgres(err error) class {
	var e *pgconn.PgError
	switch {
	case err == nil:
		return ordinary
	case errors.As(err, &e):
		return classifyState(e.Code)
	case errors.Is(err, errNotCommitted):
		return contended
	case errors.Is(err, context.Canceled):
		return givenUp
	}
	var network net.Error
	var connecting *pgconn.ConnectError
	if errors.As(err, &network) || errors.As(err, &connecting) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) {
		return unavailable
	}
	return ordinary
}

// classifyState classifies an error by its SQLSTATE.
func classifyState(code string) class {
	switch code {
	case "40001", "40P01", "55P03", // serialization failure, deadlock, lock not available
		"23505",       // a row with this key exists: perhaps only now, or the transaction had only hoped that it is new
		stateOutdated: // the thread has changed since the state that the transaction was decided on
		return contended
	case "XX001", "XX002": // data or index corrupted
		return broken
	case "25006", // read only: the server has become a standby
		"25P03": // idle in transaction for too long
		return unavailable
	}
	for _, kind := range []string{"08", "53", "57P", "58", "3D", "28"} { // connection, resources, shutdown, system, database, authorisation
		if strings.HasPrefix(code, kind) {
			return unavailable
		}
	}
	return ordinary
}
