package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// SweepKeys implements store.Store.
func (s *Store) SweepKeys(ctx context.Context, before int64, limit int) (removed int64, err error) {
	return s.sweep(ctx, "idempotency keys", queries.SweepKeys, before, limit)
}

// SweepInboxKeys implements store.Store.
func (s *Store) SweepInboxKeys(ctx context.Context, before int64, limit int) (removed int64, err error) {
	return s.sweep(ctx, "keys of inbox items", queries.SweepInboxKeys, before, limit)
}

// SweepDeltas implements store.Store.
func (s *Store) SweepDeltas(ctx context.Context, before int64, limit int) (removed int64, err error) {
	return s.sweep(ctx, "pieces of answers", queries.SweepDeltas, before, limit)
}

// SweepDeleted implements store.Store.
func (s *Store) SweepDeleted(ctx context.Context, before int64, limit int) (removed int64, err error) {
	return s.sweep(ctx, "marks of deleted objects", queries.SweepDeleted, before, limit)
}

func (s *Store) sweep(ctx context.Context, what, query string, before int64, limit int) (removed int64, err error) {
	err = s.db.Writer.Do(ctx, func(t *txn.Tx) error {
		removed, err = t.Exec(t.Ctx, query, before, limit)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sweep %s: %w", what, err)
	}
	return removed, nil
}
