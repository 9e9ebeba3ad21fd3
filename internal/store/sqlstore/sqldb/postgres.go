package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// ConnectTimeout is how long a connection may take to open.
	ConnectTimeout = 5 * time.Second
	closeTimeout   = time.Second
	// silentFor is how long data that was sent may wait for the other side to receive it, in milliseconds.
	silentFor = 30_000

	// Commit ends a transaction.
	Commit = "COMMIT"

	// stateOutdated is the SQLSTATE of a division by zero. Queries that are guarded (txn) divide by the number of rows
	// that are still as expected, so they fail when there is none.
	stateOutdated = "22012"
)

// AnswerTimeout is how long a whole transaction that writes, or a statement of one that reads, may take before the connection counts as
// lost. It is a variable for tests.
var AnswerTimeout = 30 * time.Second

// errNotCommitted means that the transaction had failed earlier without notice.
var errNotCommitted = errors.New("the database rolled the transaction back")

// Configure sets what the store needs of each connection.
func Configure(c *pgx.ConnConfig) {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = ConnectTimeout
	}
	host, _ := os.Hostname()
	for name, value := range map[string]string{
		"application_name": "skein " + host,
		// A replica that hangs in the middle of a transaction must not lock its threads' rows for ever.
		"idle_in_transaction_session_timeout": "10s",
		// The server notices within half a minute that a replica is gone, for example with its node. dialer does so for a server.
		"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	} {
		if _, set := c.RuntimeParams[name]; !set {
			c.RuntimeParams[name] = value
		}
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	c.DialFunc = dialer(c.ConnectTimeout).DialContext
}

// dialer opens connections that fail half a minute after the server has vanished.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control: func(network, _ string, c syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") {
				return nil
			}
			return limitSilence(c)
		},
	}
}

// ConnectPostgres opens a connection. lost counts the lost connections of the store.
func ConnectPostgres(ctx context.Context, d *Dialect, config *pgx.ConnConfig, shared *Clock, lost *atomic.Int64, writes bool) (*Conn, error) {
	born := lost.Load()
	c, err := Open(ctx, d, func(ctx context.Context, writes bool) (Link, error) {
		return linkPostgres(ctx, config, shared, writes)
	}, writes)
	if err != nil {
		return nil, err
	}
	c.age, c.born = lost, born
	return c, nil
}

func linkPostgres(ctx context.Context, config *pgx.ConnConfig, shared *Clock, writes bool) (Link, error) {
	db, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout)
	defer cancel()
	if err := shared.Read(ctx, db); err != nil {
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

// ClassifyPostgres returns what an error of pgx means.
func ClassifyPostgres(err error) Class {
	var e *pgconn.PgError
	switch {
	case err == nil:
		return Ordinary
	case errors.As(err, &e):
		return classifyState(e.Code)
	case errors.Is(err, errNotCommitted):
		return Contended
	case errors.Is(err, context.Canceled):
		return GivenUp
	}
	var network net.Error
	var connecting *pgconn.ConnectError
	if errors.As(err, &network) || errors.As(err, &connecting) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) {
		return Unavailable
	}
	return Ordinary
}

// classifyState classifies an error by its SQLSTATE.
func classifyState(code string) Class {
	switch code {
	case "40001", "40P01", "55P03", // serialization failure, deadlock, lock not available
		"23505",       // a row with this key exists: perhaps only now, or the transaction had only assumed that it is new
		stateOutdated: // the thread has changed since the state that the transaction was decided on
		return Contended
	case "XX001", "XX002": // data or index corrupted
		return Broken
	case "25006", // read only: the server has become a standby
		"25P03": // idle in transaction for too long
		return Unavailable
	}
	for _, kind := range []string{"08", "53", "57P", "58", "3D", "28"} { // connection, resources, shutdown, system, database, authorisation
		if strings.HasPrefix(code, kind) {
			return Unavailable
		}
	}
	return Ordinary
}
