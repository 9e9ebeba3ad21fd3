package runs

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Unsettled implements store.Store.
func (s Store) Unsettled(ctx context.Context, before int64, limit int) ([]store.RunRef, error) {
	refs, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.RunRef, error) {
		var r store.RunRef
		return &r, scan(&r.ThreadID, &r.RunID)
	}, queries.Unsettled, before, sqldb.PageSize(limit))
	if err != nil {
		return nil, fmt.Errorf("list runs with unfinished post-run tasks: %w", err)
	}
	return refs, nil
}

// Settle implements store.Store.
func (s Store) Settle(ctx context.Context, run store.RunRef) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		return t.Write(t.Ctx, queries.Settle, run.ThreadID, run.RunID)
	}, run.ThreadID)
}
