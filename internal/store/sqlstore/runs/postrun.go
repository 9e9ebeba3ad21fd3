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

// LeftPostRun implements store.Store.
func (s Store) LeftPostRun(ctx context.Context, ttl time.Duration, limit int) ([]store.LeftRun, error) {
	now := s.DB.Now()
	left, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.LeftRun, error) {
		var l store.LeftRun
		return &l, scan(&l.ThreadID, &l.RunID, &l.Namespace)
	}, queries.LeftPostRun, now, now-ttl.Microseconds(), sqldb.PageSize(limit))
	if err != nil {
		return nil, fmt.Errorf("look for runs whose tasks were left undone: %w", err)
	}
	return left, nil
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
