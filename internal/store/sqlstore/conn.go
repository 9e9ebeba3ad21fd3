package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/store"
)

// link is one connection of a driver. Queries use "?" for parameters.
type link interface {
	exec(ctx context.Context, query string, args []any) (int64, error)
	query(ctx context.Context, query string, args []any) (rowset, error)
	// queue sends a statement whose result is not needed, together with the next exec or query at the latest. Its error
	// may be returned by that call.
	queue(ctx context.Context, query string, args []any) error
	close() error
}

// rowset is the rows of a result.
type rowset interface {
	Next() bool
	Scan(dst ...any) error
	Err() error
	Close() error
}

// querier reads and writes, in a transaction or directly on a connection.
type querier interface {
	// exec runs a statement and returns the number of rows that it changed.
	exec(ctx context.Context, query string, args ...any) (int64, error)
	// row reads one row into dst. It returns store.ErrNotFound when there is none.
	row(ctx context.Context, query string, args []any, dst ...any) error
	// one returns a scanner of one row.
	one(ctx context.Context, query string, args ...any) scanner
	// rows calls each for every row.
	rows(ctx context.Context, query string, args []any, each func(scan scanner) error) error
}

// conn is one connection. Only one goroutine may use it at a time.
type conn struct {
	link    link
	dialect *dialect
	// failed is set when an error made the connection doubtful. Its user then closes it instead of returning it to the
	// pool.
	failed bool
	// age counts the lost connections of this store; nil when a lost connection says nothing about the others. born is
	// the value of age when this connection was opened.
	age  *atomic.Int64
	born int64
}

// stale reports whether a connection was lost since this one was opened, so that this one is likely to be lost too.
func (c *conn) stale() bool { return c.age != nil && c.age.Load() != c.born }

var _ querier = (*conn)(nil)

// opener opens a connection. writes says whether it will write.
type opener func(ctx context.Context, writes bool) (link, error)

func newConn(ctx context.Context, d *dialect, open opener, writes bool) (*conn, error) {
	l, err := open(ctx, writes)
	if err != nil {
		return nil, wrap(d, err)
	}
	return &conn{link: l, dialect: d}, nil
}

func (c *conn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := c.link.exec(ctx, query, args)
	return n, c.fail(err)
}

// write runs a statement whose result is not needed.
func (c *conn) write(ctx context.Context, query string, args ...any) error {
	return c.fail(c.link.queue(ctx, query, args))
}

func (c *conn) row(ctx context.Context, query string, args []any, dst ...any) (err error) {
	rows, err := c.link.query(ctx, query, args)
	if err != nil {
		return c.fail(err)
	}
	defer func() {
		if end := rows.Close(); err == nil {
			err = c.fail(end)
		}
	}()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return c.fail(err)
		}
		return store.ErrNotFound
	}
	return c.fail(rows.Scan(dst...))
}

func (c *conn) one(ctx context.Context, query string, args ...any) scanner {
	return func(dst ...any) error { return c.row(ctx, query, args, dst...) }
}

func (c *conn) rows(ctx context.Context, query string, args []any, each func(scan scanner) error) (err error) {
	rows, err := c.link.query(ctx, query, args)
	if err != nil {
		return c.fail(err)
	}
	defer func() {
		if end := rows.Close(); err == nil {
			err = c.fail(end)
		}
	}()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return c.fail(rows.Err())
}

// fail marks the connection as failed when the database caused the error, and wraps the error.
func (c *conn) fail(err error) error {
	if err == nil {
		return nil
	}
	if class := c.dialect.classify(err); class == unavailable || class == broken || class == givenUp {
		c.failed = true
		if c.age != nil && class == unavailable {
			c.age.Add(1)
		}
	}
	return wrap(c.dialect, err)
}

func (c *conn) close() error { return c.link.close() }

func wrap(d *dialect, err error) error {
	if d.classify(err) == unavailable && !errors.Is(err, store.ErrUnavailable) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}
