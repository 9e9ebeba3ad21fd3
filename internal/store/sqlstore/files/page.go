package files

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// FilesPage implements store.Store.
func (s Store) FilesPage(ctx context.Context, threadID string, q store.FileQuery) (page []store.File, more bool, err error) {
	limit := sqldb.PageSize(q.Limit)
	query, args := pageQuery(threadID, q)
	args = append(args, limit+1, max(q.Offset, 0))
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		rows, err := sqldb.List(ctx, c, scanFile, query, args...)
		if err != nil {
			return err
		}
		page, more, err = pageOf(ctx, c, threadID, rows, limit, q.MaxBytes)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("files of thread %s: %w", threadID, err)
	}
	return page, more, nil
}

func pageQuery(threadID string, q store.FileQuery) (query string, args []any) {
	if !q.Recursive {
		query = queries.PageDirect
		if q.Bare {
			query = queries.BareDirect
		}
		return query, []any{threadID, q.Folder, q.After}
	}
	query = queries.PageBelow
	if q.Bare {
		query = queries.BareBelow
	}
	from, to := below(q.Folder)
	return query, []any{threadID, max(from, q.After), to}
}

// below returns the bounds of the paths below a folder, which are between them: these are all paths that begin with its name and a slash,
// and the upper bound has the character after the slash.
func below(folder string) (from, to string) {
	if folder != "/" {
		folder += "/"
	}
	return folder, folder[:len(folder)-1] + "0"
}

// pageOf returns the files of rows, of which there is one more than the limit if others follow.
func pageOf(ctx context.Context, c *sqldb.Conn, threadID string, rows []store.File, limit int, most int64) (page []store.File, more bool, err error) {
	page = []store.File{}
	left := most
	for i := range rows {
		if len(page) == limit {
			return page, true, nil
		}
		f := &rows[i]
		if f.Metadata != nil && len(f.Metadata) == 0 { // it is long
			f, err = scanFile(c.One(ctx, queries.File, threadID, f.Path))
			if errors.Is(err, store.ErrNotFound) {
				continue // it was removed meanwhile
			}
			if err != nil {
				return nil, false, err
			}
		}
		if left -= f.Bytes(); most > 0 && left < 0 && len(page) > 0 {
			return page, true, nil
		}
		page = append(page, *f)
	}
	return page, false, nil
}
