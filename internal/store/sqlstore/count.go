package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// countedAtOnce is how many rows a step of a count reads. It is a variable for tests.
var countedAtOnce int64 = 10_000

// count implements store.Count.
type count struct {
	db    *txn.DB
	rows  map[string]int64
	bytes int64

	estimated bool
	tables    []queries.Counted // those that are not counted yet
	after     [2]any            // the key in the first of them behind which the count goes on
	digest    string            // the same in contents
}

// Count implements store.StatisticsStore.
func (s *Store) Count() store.Count {
	c := &count{db: s.db, rows: map[string]int64{}}
	if s.db.Dialect.EstimateRows == "" {
		c.begin(queries.CountedTables)
	}
	return c
}

// begin goes on with the first of the tables.
func (c *count) begin(tables []queries.Counted) {
	c.tables = tables
	if len(tables) > 0 {
		c.after = tables[0].Before
	}
}

// Rows implements store.Count.
func (c *count) Rows() map[string]int64 { return c.rows }

// ContentsBytes implements store.Count.
func (c *count) ContentsBytes() int64 { return c.bytes }

// Step implements store.Count.
func (c *count) Step(ctx context.Context) (done bool, err error) {
	switch {
	case len(c.tables) > 0:
		if err := c.slice(ctx, c.tables[0]); err != nil {
			return false, fmt.Errorf("count the rows of %s: %w", c.tables[0].Table, err)
		}
		return false, nil
	case c.db.Dialect.EstimateRows != "" && !c.estimated:
		if err := c.estimate(ctx); err != nil {
			return false, fmt.Errorf("estimate the rows of tables: %w", err)
		}
		return false, nil
	}
	if done, err = c.contents(ctx); err != nil {
		return false, fmt.Errorf("sum up the contents of files: %w", err)
	}
	return done, nil
}

// slice counts the next rows of a table.
func (c *count) slice(ctx context.Context, t queries.Counted) error {
	return c.db.Readers.Read(ctx, func(conn *sqldb.Conn) error {
		var within int64
		second := place(t.Before[1])
		if err := conn.Row(ctx, t.Within(), []any{c.after[0], c.after[1], countedAtOnce}, &within, second); err != nil {
			return err
		}
		if within == countedAtOnce {
			c.rows[t.Table] += within
			c.after[1] = valueAt(second)
			return nil
		}
		first := place(t.Before[0])
		err := conn.Row(ctx, t.EndOfSlice(), []any{c.after[0], countedAtOnce - within - 1}, first, second)
		if err == nil {
			c.rows[t.Table] += countedAtOnce
			c.after = [2]any{valueAt(first), valueAt(second)}
			return nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		var rest int64
		if err := conn.Row(ctx, t.Rest(), c.after[:1], &rest); err != nil {
			return err
		}
		c.rows[t.Table] += within + rest
		c.begin(c.tables[1:])
		return nil
	})
}

// place returns where a column is read to that has the type of v.
func place(v any) any {
	if _, ok := v.(string); ok {
		return new(string)
	}
	return new(int64)
}

// valueAt returns what was read to a place.
func valueAt(p any) any {
	if text, ok := p.(*string); ok {
		return *text
	}
	return *p.(*int64)
}

type tableRows struct {
	name string
	rows int64
}

// estimate reads the database's own estimates.
func (c *count) estimate(ctx context.Context) error {
	all, err := sqldb.ReadList(ctx, c.db.Readers, func(scan sqldb.Scanner) (*tableRows, error) {
		var t tableRows
		return &t, scan(&t.name, &t.rows)
	}, c.db.Dialect.EstimateRows)
	if err != nil {
		return err
	}
	for _, t := range all {
		c.rows[t.name] = t.rows
	}
	c.estimated = true
	return nil
}

// contents counts the next contents of files.
func (c *count) contents(ctx context.Context) (done bool, err error) {
	var rows, bytes int64
	var last string
	if err := c.db.Readers.Row(ctx, queries.ContentsSlice, []any{c.digest, countedAtOnce}, &rows, &bytes, &last); err != nil {
		return false, err
	}
	c.rows["contents"] += rows
	c.bytes += bytes
	c.digest = last
	return rows < countedAtOnce, nil
}
