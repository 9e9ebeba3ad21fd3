package firings

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// What a search for due firings looks at, at most. It is repeated for each firing that ends while others wait.
const (
	oldestDue          = 64  // firings that are due, or twice the caller's limit
	searchedNamespaces = 100 // namespaces that have any firing, when more are due than that
)

// DueFirings implements store.FiringStore.
func (s Store) DueFirings(ctx context.Context, from string, limit int) (*store.DueSearch, error) {
	limit = sqldb.PageSize(limit)
	var out *store.DueSearch
	err := s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		now := s.DB.Now()
		out = &store.DueSearch{From: from}
		var at int64
		later, err := sqldb.Found(c.Row(ctx, queries.NextFiring, []any{now}, &at))
		if err != nil {
			return err
		}
		if later {
			out.Next = time.Duration(at-now) * time.Microsecond
		}
		found, all, err := s.oldest(ctx, c, now, limit)
		if err != nil {
			return err
		}
		if !all {
			all = from == ""
			if out.From, err = s.search(ctx, c, now, from, limit, found); err != nil {
				return err
			}
			all = all && out.From == ""
		}
		out.Due, out.All = slices.Collect(maps.Values(found)), all
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for firings that are due: %w", err)
	}
	slices.SortFunc(out.Due, func(a, b store.DueFirings) int {
		return cmp.Or(cmp.Compare(a.Oldest, b.Oldest), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out, nil
}

// oldest returns the namespaces of the firings that are due for the longest time, and whether these are all that are due.
func (s Store) oldest(ctx context.Context, c *sqldb.Conn, now int64, limit int) (found map[string]store.DueFirings, all bool, err error) {
	most, n := max(oldestDue, 2*limit), 0
	found = map[string]store.DueFirings{}
	err = c.Rows(ctx, queries.OldestDue, []any{now, most}, func(scan sqldb.Scanner) error {
		var d store.DueFirings
		if err := scan(&d.Namespace, &d.Oldest); err != nil {
			return err
		}
		if earlier, ok := found[d.Namespace]; ok {
			d = earlier
		}
		d.Count = min(d.Count+1, limit)
		found[d.Namespace] = d
		n++
		return nil
	})
	return found, n < most, err
}

// search looks at the namespaces that have firings, from a name on, and adds to found what is due in them. It returns the last one that it has
// looked at, or nothing if there are no more.
func (s Store) search(ctx context.Context, c *sqldb.Conn, now int64, from string, limit int, found map[string]store.DueFirings) (last string, err error) {
	n := 0
	err = c.Rows(ctx, queries.DueFirings, []any{from, searchedNamespaces, now, limit}, func(scan sqldb.Scanner) error {
		var d store.DueFirings
		if err := scan(&d.Namespace, &d.Count, &d.Oldest); err != nil {
			return err
		}
		if d.Count > 0 {
			found[d.Namespace] = d
		}
		n, last = n+1, d.Namespace
		return nil
	})
	if n < searchedNamespaces {
		last = ""
	}
	return last, err
}
