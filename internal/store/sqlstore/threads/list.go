package threads

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// fewThreads is the largest number of threads of a filter that are all read and sorted. A filter that selects more is
// applied while reading the threads by activity, because it soon fills a page.
const fewThreads = 2000

// Threads implements store.Store. It first selects the threads and then reads their rows, so that the many threads of a
// busy second are sorted without reading them all.
func (s Store) Threads(ctx context.Context, q store.ThreadQuery) (threads []store.Thread, more bool, err error) {
	limit := sqldb.PageSize(q.Limit)
	q.Limit = limit + 1
	q.Offset = max(q.Offset, 0)
	by, err := s.selective(ctx, q)
	if err != nil {
		return nil, false, fmt.Errorf("list threads: %w", err)
	}
	query, args := ListQuery(q, by)
	return s.page(ctx, s.DB.Readers.Interruptible(), limit, q.MaxBytes, query, args...)
}

// Filter is a condition on an indexed column of thread.
type Filter struct{ column, value, partial string }

// Filters returns the conditions of a query on indexed columns of thread.
func Filters(q store.ThreadQuery) (fs []Filter) {
	if q.UserID != "" {
		fs = append(fs, Filter{"user_id", q.UserID, " AND f.user_id <> ''"})
	}
	if q.TaskID != "" {
		fs = append(fs, Filter{"task_id", q.TaskID, " AND f.task_id <> ''"})
	}
	if q.Agent != "" {
		fs = append(fs, Filter{"agent", q.Agent, ""})
	}
	return fs
}

// selective returns a filter that selects few threads; nil when there is none.
func (s Store) selective(ctx context.Context, q store.ThreadQuery) (*Filter, error) {
	for _, f := range Filters(q) {
		var n int
		if err := s.DB.Readers.Row(ctx, `SELECT count(*) FROM (SELECT 1 FROM thread f WHERE f.`+f.column+` = ?`+f.partial+` LIMIT ?) few`,
			[]any{f.value, fewThreads + 1}, &n); err != nil {
			return nil, err
		}
		if n <= fewThreads {
			return &f, nil
		}
	}
	return nil, nil
}

// ListQuery builds the query of a list. With by, it finds the threads by the index of that filter, otherwise by their
// activity. SQLite joins the tables in the order given here; PostgreSQL plans by itself.
func ListQuery(q store.ThreadQuery, by *Filter) (string, []any) {
	from := `thread_head a`
	all := Filters(q)
	switch {
	case by != nil:
		from = `thread f CROSS JOIN thread_head a`
	case len(all) > 0:
		from = `thread_head a CROSS JOIN thread f`
	}
	var where []string
	var args []any
	cond := func(text string, values ...any) {
		where, args = append(where, text), append(args, values...)
	}
	if len(all) > 0 {
		cond(`f.key = a.thread`)
	}
	for _, f := range all {
		cond(`f.`+f.column+` = ?`+f.partial, f.value)
	}
	if q.Namespace != "" {
		cond(`a.namespace = ?`, q.Namespace)
	}
	if q.NamespaceUIDs != nil {
		foreign, uids := queries.ForeignCondition("r", q.NamespaceUIDs)
		cond(`NOT EXISTS (SELECT 1 FROM thread r WHERE r.key = a.thread AND `+foreign+`)`, uids...)
	}
	if q.After != nil {
		second := q.After.LastActivityAt / time.Second.Microseconds()
		cond(`a.activity_second <= ? AND (a.last_activity_at, a.thread) < (?, COALESCE((SELECT key FROM thread WHERE id = ?), 0))`,
			second, q.After.LastActivityAt, q.After.ID)
	}
	one := func(archived int) string {
		conds := append([]string{fmt.Sprintf(`a.archived = %d`, archived)}, where...)
		return `SELECT a.thread, a.activity_second, a.last_activity_at FROM ` + from + ` WHERE ` + strings.Join(conds, ` AND `) +
			` ORDER BY a.activity_second DESC, a.last_activity_at DESC, a.thread DESC LIMIT ?`
	}
	var top []any
	var found string
	switch q.Archived {
	case store.ArchivedShown: // the first page of each, then the first page of both
		found = `SELECT b.thread FROM (SELECT * FROM (` + one(0) + `) u UNION ALL SELECT * FROM (` + one(1) + `) v) b
			ORDER BY b.activity_second DESC, b.last_activity_at DESC, b.thread DESC LIMIT ? OFFSET ?`
		first := append(append([]any{}, args...), q.Offset+q.Limit)
		top = append(append(first, first...), q.Limit, q.Offset)
	default:
		archived := 0
		if q.Archived == store.ArchivedOnly {
			archived = 1
		}
		found = `SELECT b.thread FROM (` + one(archived) + ` OFFSET ?) b`
		top = append(append([]any{}, args...), q.Limit, q.Offset)
	}
	return `SELECT ` + queries.ListColumns + queries.FromThreads + ` WHERE h.thread IN (` + found + `) ORDER BY h.last_activity_at DESC, h.thread DESC`, top
}
