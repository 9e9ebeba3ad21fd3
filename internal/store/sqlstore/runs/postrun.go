package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// PostRunPending implements store.Store.
func (s Store) PostRunPending(ctx context.Context, before int64, limit int) ([]store.RunRef, error) {
	refs, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.RunRef, error) {
		var r store.RunRef
		return &r, scan(&r.ThreadID, &r.RunID)
	}, queries.PostRunPending, before, sqldb.PageSize(limit))
	if err != nil {
		return nil, fmt.Errorf("list runs with unfinished post-run tasks: %w", err)
	}
	return refs, nil
}

// FinishPostRun implements store.Store.
func (s Store) FinishPostRun(ctx context.Context, run store.RunRef) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		return t.Write(t.Ctx, queries.FinishPostRun, run.ThreadID, run.RunID)
	}, run.ThreadID)
}

// ClaimPostRun implements store.Store.
func (s Store) ClaimPostRun(ctx context.Context, ttl time.Duration, limit int) ([]store.RunRef, error) {
	var taken []store.RunRef
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		taken = nil
		var keys []int64
		if err := t.Rows(t.Ctx, s.DB.Dialect.LeftPostRun, []any{t.Now, t.Now - ttl.Microseconds(), sqldb.PageSize(limit)}, func(scan sqldb.Scanner) error {
			var r store.RunRef
			var key int64
			err := scan(&r.ThreadID, &r.RunID, &key)
			taken, keys = append(taken, r), append(keys, key)
			return err
		}); err != nil {
			return err
		}
		for i, r := range taken {
			if err := t.Write(t.Ctx, queries.ClaimPostRun, t.Now+ttl.Microseconds(), keys[i], r.RunID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take runs with unfinished post-run tasks: %w", err)
	}
	return taken, nil
}

// TakeTasks implements store.Store.
func (s Store) TakeTasks(ctx context.Context, run store.RunRef, ttl time.Duration) (taken bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		n, err := t.Exec(t.Ctx, queries.TakeTasks, t.Now+ttl.Microseconds(), run.ThreadID, run.RunID, t.Now)
		taken = n > 0
		return err
	}, run.ThreadID)
	return taken, err
}

// HandOver implements store.Store.
func (s Store) HandOver(ctx context.Context, runs []store.RunRef) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for _, r := range runs {
			n, err := t.Exec(t.Ctx, queries.HandOver, t.Now, r.ThreadID, r.RunID)
			if err != nil {
				return err
			}
			if n > 0 {
				t.Notifications = append(t.Notifications, store.Notification{ThreadID: r.ThreadID, Changed: store.ChangedTasks})
			}
		}
		return nil
	})
}
