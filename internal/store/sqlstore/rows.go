package sqlstore

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

const (
	defaultPage   = 100
	defaultEvents = 1000
)

// pageSize returns limit, or defaultPage when it is 0 or less.
func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return limit
}

// found turns the error of a look-up into whether the row exists.
func found(err error) (bool, error) {
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// list returns the rows of a query, each read by read. It returns an empty list when there are none.
func list[T any](ctx context.Context, q querier, read func(scanner) (*T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := q.rows(ctx, query, args, func(scan scanner) error {
		v, err := read(scan)
		if err == nil {
			all = append(all, *v)
		}
		return err
	})
	return all, err
}

// column returns the values of a query with one column.
func column[T any](ctx context.Context, q querier, query string, args ...any) ([]T, error) {
	return list(ctx, q, func(scan scanner) (*T, error) {
		var v T
		return &v, scan(&v)
	}, query, args...)
}

// readOne reads one row on a connection that only reads.
func readOne[T any](ctx context.Context, r *readers, read func(scanner) (*T, error), query string, args ...any) (v *T, err error) {
	err = r.read(ctx, func(c *conn) error {
		v, err = read(c.one(ctx, query, args...))
		return err
	})
	return v, err
}

// readList is list on a connection that only reads.
func readList[T any](ctx context.Context, r *readers, read func(scanner) (*T, error), query string, args ...any) (all []T, err error) {
	err = r.read(ctx, func(c *conn) error {
		all, err = list(ctx, c, read, query, args...)
		return err
	})
	return all, err
}

// readColumn is column on a connection that only reads.
func readColumn[T any](ctx context.Context, r *readers, query string, args ...any) (all []T, err error) {
	err = r.read(ctx, func(c *conn) error {
		all, err = column[T](ctx, c, query, args...)
		return err
	})
	return all, err
}
