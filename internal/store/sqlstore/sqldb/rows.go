package sqldb

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// DefaultPage is how many rows a list returns when its caller sets no limit.
	DefaultPage = 100
	// DefaultEvents is that of lists of log entries.
	DefaultEvents = 1000
)

// PageSize returns limit, or DefaultPage when it is 0 or less.
func PageSize(limit int) int {
	if limit <= 0 {
		return DefaultPage
	}
	return limit
}

// Found turns the error of a look-up into whether the row exists.
func Found(err error) (bool, error) {
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// List returns the rows of a query, each read by read. It returns an empty list when there are none.
func List[T any](ctx context.Context, q Querier, read func(Scanner) (*T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := q.Rows(ctx, query, args, func(scan Scanner) error {
		v, err := read(scan)
		if err == nil {
			all = append(all, *v)
		}
		return err
	})
	return all, err
}

// Column returns the values of a query with one column.
func Column[T any](ctx context.Context, q Querier, query string, args ...any) ([]T, error) {
	return List(ctx, q, func(scan Scanner) (*T, error) {
		var v T
		return &v, scan(&v)
	}, query, args...)
}

// ReadOne reads one row on a connection that only reads.
func ReadOne[T any](ctx context.Context, r *Readers, read func(Scanner) (*T, error), query string, args ...any) (v *T, err error) {
	err = r.Read(ctx, func(c *Conn) error {
		v, err = read(c.One(ctx, query, args...))
		return err
	})
	return v, err
}

// ReadList is List on a connection that only reads.
func ReadList[T any](ctx context.Context, r *Readers, read func(Scanner) (*T, error), query string, args ...any) (all []T, err error) {
	err = r.Read(ctx, func(c *Conn) error {
		all, err = List(ctx, c, read, query, args...)
		return err
	})
	return all, err
}

// ReadColumn is Column on a connection that only reads.
func ReadColumn[T any](ctx context.Context, r *Readers, query string, args ...any) (all []T, err error) {
	err = r.Read(ctx, func(c *Conn) error {
		all, err = Column[T](ctx, c, query, args...)
		return err
	})
	return all, err
}
