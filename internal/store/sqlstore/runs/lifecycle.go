package runs

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Feed writes an entry of the lifecycle feed (STA-06). An empty agent stands for the thread's own.
func Feed(t *txn.Tx, h *txn.Head, kind, agent, runID, reason string) error {
	switch kind {
	case store.LifecycleThreadCreated, store.LifecycleSessionStarted:
		h.Touch(store.ChangedAtWork)
	default:
		h.Touch(store.ChangedThread)
	}
	if t.OneWriter() {
		return t.Write(t.Ctx, queries.LogLifecycleOf, h.Namespace, h.Key, kind, h.ID, h.Key, agent, h.Key, agent, runID, reason, t.Now)
	}
	return t.Write(t.Ctx, queries.LogLifecycle, kind, agent, agent, runID, reason, t.Now, h.Key)
}

// Lifecycle implements store.SessionStore.
func (s Store) Lifecycle(ctx context.Context, q store.LifecycleQuery) (page *store.LifecyclePage, err error) {
	q.Limit = sqldb.PageSize(q.Limit)
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		page = &store.LifecyclePage{Events: []store.LifecycleEvent{}, Next: q.After}
		if q.Latest {
			query := queries.LifecycleEnd
			if c.Dialect.ManyWriters {
				query = queries.LifecycleEndByTick
			}
			return c.Row(ctx, query, nil, &page.Next.Tick, &page.Next.Seq)
		}
		return readFeed(ctx, c, q, page)
	})
	if err != nil {
		return nil, fmt.Errorf("lifecycle feed: %w", err)
	}
	return page, nil
}

// readFeed reads entries up to the limit, or up to one that is not final. It reads and skips entries of other
// namespaces, because stores with many feed readers rarely have many namespaces. A cursor of another server, from which the database was
// moved here, is behind all entries.
func readFeed(ctx context.Context, c *sqldb.Conn, q store.LifecycleQuery, page *store.LifecyclePage) error {
	for looked := false; ; {
		query, args := queries.LifecycleInOrder, []any{page.Next.Seq, feedStep}
		if c.Dialect.ManyWriters {
			query, args = queries.LifecycleByTick, []any{page.Next.Tick, page.Next.Seq, feedStep}
		}
		rows := 0
		if err := c.Rows(ctx, query, args, func(scan sqldb.Scanner) error {
			var e store.LifecycleEvent
			var final int64
			if err := scan(&e.Cursor.Tick, &final, &e.Cursor.Seq, &e.Namespace, &e.NamespaceUID, &e.Type, &e.ThreadID, &e.ThreadName, &e.Agent,
				&e.RunID, &e.Reason, &e.CreatedAt); err != nil {
				return err
			}
			rows++
			if final == 0 || page.InFlight {
				page.InFlight = true
				return nil
			}
			if len(page.Events) == q.Limit {
				return nil
			}
			page.Next = e.Cursor
			if q.Selects(&e) {
				page.Events = append(page.Events, e)
			}
			return nil
		}); err != nil {
			return err
		}
		if rows == 0 && !looked && c.Dialect.ManyWriters && q.After.Tick > 0 {
			looked = true
			moved, err := sqldb.Found(c.Row(ctx, queries.LifecycleMoved, []any{page.Next.Seq, page.Next.Tick}, &page.Next.Tick))
			if err != nil {
				return err
			}
			if moved {
				continue
			}
		}
		if rows < feedStep || page.InFlight || len(page.Events) == q.Limit {
			return nil
		}
	}
}

// feedStep is how many entries one query reads.
const feedStep = 500
