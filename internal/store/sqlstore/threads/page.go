package threads

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// row is a thread as queries.PageColumns select it.
type row struct {
	store.Thread
	arguments, fields bool // true for a value that is long and was not read yet
}

// page returns at most limit threads of a query, and whether more follow. The query must select one row more than limit. If most is above 0,
// the threads take at most that many bytes of memory. The first thread is returned whatever its size.
func (s Store) page(ctx context.Context, r *sqldb.Readers, limit int, most int64, query string, args ...any) (page []store.Thread, more bool, err error) {
	err = r.Read(ctx, func(c *sqldb.Conn) error {
		rows, err := sqldb.List(ctx, c, scanRow, query, args...)
		if err != nil {
			return err
		}
		page, more, err = pageOf(ctx, c, rows, limit, most)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list threads: %w", err)
	}
	return page, more, nil
}

func pageOf(ctx context.Context, c *sqldb.Conn, rows []row, limit int, most int64) (page []store.Thread, more bool, err error) {
	page = []store.Thread{}
	left := most
	for i := range rows {
		if len(page) == limit {
			return page, true, nil
		}
		err := rows[i].complete(ctx, c)
		if errors.Is(err, store.ErrNotFound) {
			continue // it was purged meanwhile
		}
		if err != nil {
			return nil, false, err
		}
		t := &rows[i].Thread
		if left -= t.Bytes(); most > 0 && left < 0 && len(page) > 0 {
			return page, true, nil
		}
		page = append(page, *t)
	}
	return page, false, nil
}

// complete reads the long values that were not read yet. The other values stay as the page's query returned them, because the cursor of the
// next page is made of them.
func (r *row) complete(ctx context.Context, c *sqldb.Conn) error {
	if !r.arguments && !r.fields {
		return nil
	}
	whole, err := Scan(c.One(ctx, queries.Thread, r.ID))
	if err != nil {
		return err
	}
	if r.arguments {
		r.Arguments = whole.Arguments
	}
	if r.fields {
		r.Fields = whole.Fields
	}
	return nil
}
