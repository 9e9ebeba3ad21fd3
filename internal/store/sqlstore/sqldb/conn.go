// Package sqldb is how the store talks to a database: connections that may fail and are replaced, the links to the
// drivers of SQLite and PostgreSQL, what their errors mean, and reading rows. It knows no threads.
package sqldb

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/store"
)

// Link is one connection of a driver. Queries use "?" for parameters.
type Link interface {
	Exec(ctx context.Context, query string, args []any) (int64, error)
	query(ctx context.Context, query string, args []any) (RowSet, error)
	// Queue sends a statement whose result is not needed, together with the next exec or query at the latest. Its error
	// may be returned by that call.
	Queue(ctx context.Context, query string, args []any) error
	// setInterruptible says whether the end of a context interrupts a query before its first row, so that a statement may take any time. A
	// driver may always interrupt. One with a server lets other statements fail when there is no answer for AnswerTimeout.
	setInterruptible(on bool)
	Close() error
}

// RowSet is the rows of a result.
type RowSet interface {
	Next() bool
	Scan(dst ...any) error
	Err() error
	Close() error
}

// Querier reads and writes, in a transaction or directly on a connection.
type Querier interface {
	// Exec runs a statement and returns the number of rows that it changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Row reads one row into dst. It returns store.ErrNotFound when there is none.
	Row(ctx context.Context, query string, args []any, dst ...any) error
	// One returns a scanner of one row.
	One(ctx context.Context, query string, args ...any) Scanner
	// Rows calls each for every row.
	Rows(ctx context.Context, query string, args []any, each func(scan Scanner) error) error
}

// Conn is one connection. Only one goroutine may use it at a time.
type Conn struct {
	Link    Link
	Dialect *Dialect
	// Failed is set when an error made the connection doubtful. Its user then closes it instead of returning it to the
	// pool.
	Failed bool
	// age counts the lost connections of this store; nil when a lost connection says nothing about the others. born is
	// the value of age when this connection was opened.
	age  *atomic.Int64
	born int64
}

// Patient lets statements of the connection take any time.
func (c *Conn) Patient() { c.Link.setInterruptible(true) }

// Stale reports whether a connection was lost since this one was opened, so that this one is likely to be lost too.
func (c *Conn) Stale() bool { return c.age != nil && c.age.Load() != c.born }

var _ Querier = (*Conn)(nil)

// Opener opens a connection. writes says whether it will write.
type Opener func(ctx context.Context, writes bool) (Link, error)

// Open opens a connection.
func Open(ctx context.Context, d *Dialect, open Opener, writes bool) (*Conn, error) {
	l, err := open(ctx, writes)
	if err != nil {
		return nil, Wrap(d, err)
	}
	return &Conn{Link: l, Dialect: d}, nil
}

// Exec implements Querier.
func (c *Conn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := c.Link.Exec(ctx, query, args)
	return n, c.fail(err)
}

// Write runs a statement whose result is not needed.
func (c *Conn) Write(ctx context.Context, query string, args ...any) error {
	return c.fail(c.Link.Queue(ctx, query, args))
}

// Row implements Querier.
func (c *Conn) Row(ctx context.Context, query string, args []any, dst ...any) (err error) {
	rows, err := c.Link.query(ctx, query, args)
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

// One implements Querier.
func (c *Conn) One(ctx context.Context, query string, args ...any) Scanner {
	return func(dst ...any) error { return c.Row(ctx, query, args, dst...) }
}

// Rows implements Querier.
func (c *Conn) Rows(ctx context.Context, query string, args []any, each func(scan Scanner) error) (err error) {
	rows, err := c.Link.query(ctx, query, args)
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
func (c *Conn) fail(err error) error {
	if err == nil {
		return nil
	}
	if class := c.Dialect.Classify(err); class == Unavailable || class == Broken || class == GivenUp {
		c.Failed = true
		if c.age != nil && class == Unavailable {
			c.age.Add(1)
		}
	}
	return Wrap(c.Dialect, err)
}

// Drop forgets the statements that were not sent yet. It reports whether they include the beginning of the transaction,
// so that there is nothing to roll back.
func (c *Conn) Drop() (begun bool) {
	l, ok := c.Link.(*pgxLink)
	return ok && l.drop()
}

// Close closes the connection.
func (c *Conn) Close() error { return c.Link.Close() }

// Wrap returns the error, as store.ErrUnavailable when that is what it means.
func Wrap(d *Dialect, err error) error {
	if d.Classify(err) == Unavailable && !errors.Is(err, store.ErrUnavailable) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}
