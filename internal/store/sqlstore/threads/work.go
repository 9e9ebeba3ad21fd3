package threads

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// Work implements store.Store. It reads everything in one snapshot.
func (s Store) Work(ctx context.Context, threadID string) (*store.Work, error) {
	w := &store.Work{}
	err := s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) (err error) {
		var key int64
		if w.Thread, err = scanWith(c.One(ctx, queries.ThreadAndKey, threadID), &key); err != nil {
			return err
		}
		if w.Inbox, err = sqldb.List(ctx, c, inbox.Scan, queries.Inbox, key); err != nil {
			return err
		}
		w.Run, err = runs.ScanOf(threadID)(c.One(ctx, queries.NewestRun, key))
		if errors.Is(err, store.ErrNotFound) {
			w.Run, err = nil, nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("work of thread %s: %w", threadID, err)
	}
	return w, nil
}

// Position implements store.Store.
func (s Store) Position(ctx context.Context, threadID string) (p store.Position, err error) {
	err = s.DB.Readers.Row(ctx, queries.Position, []any{threadID}, &p.Agent, &p.LastSeq)
	if err != nil {
		return p, fmt.Errorf("thread %s: %w", threadID, err)
	}
	return p, nil
}
