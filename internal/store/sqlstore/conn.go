package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// conn is one connection with the statements that were prepared on it. One user at a time.
type conn struct {
	db      *sql.Conn
	dialect *dialect
	stmts   map[string]*sql.Stmt
	// failed: an error has made the connection doubtful; whoever returns it closes it.
	failed bool
}

func newConn(ctx context.Context, db *sql.DB, d *dialect, writes bool) (*conn, error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, wrap(d, err)
	}
	if err := d.setup(c, writes); err != nil {
		return nil, errors.Join(wrap(d, err), c.Close())
	}
	return &conn{db: c, dialect: d, stmts: map[string]*sql.Stmt{}}, nil
}

func (c *conn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := c.stmts[query]; s != nil {
		return s, nil
	}
	s, err := c.db.PrepareContext(ctx, c.dialect.rebind(query))
	if err != nil {
		return nil, c.fail(err)
	}
	c.stmts[query] = s
	return s, nil
}

// exec runs a statement and gives the number of rows that it changed.
func (c *conn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := c.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, c.fail(err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return 0, c.fail(err)
	}
	return n, nil
}

// row reads one row into dst; store.ErrNotFound when there is none.
func (c *conn) row(ctx context.Context, query string, args []any, dst ...any) error {
	s, err := c.stmt(ctx, query)
	if err != nil {
		return err
	}
	err = s.QueryRowContext(ctx, args...).Scan(dst...)
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return c.fail(err)
}

// one gives a scanner of one row.
func (c *conn) one(ctx context.Context, query string, args ...any) scanner {
	return func(dst ...any) error { return c.row(ctx, query, args, dst...) }
}

// rows calls each for every row.
func (c *conn) rows(ctx context.Context, query string, args []any, each func(scan scanner) error) error {
	s, err := c.stmt(ctx, query)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return c.fail(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return c.fail(rows.Err())
}

// fail marks the connection when the error is one of the database's, and gives the error its meaning.
func (c *conn) fail(err error) error {
	if err == nil {
		return nil
	}
	if c.dialect.classify(err) != ordinary {
		c.failed = true
	}
	return wrap(c.dialect, err)
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		_ = s.Close()
	}
	return c.db.Close()
}

func wrap(d *dialect, err error) error {
	if d.classify(err) == unavailable {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}
