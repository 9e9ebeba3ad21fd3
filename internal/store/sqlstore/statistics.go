package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
)

// Statistics implements store.StatisticsStore.
func (s *Store) Statistics(ctx context.Context) (*store.Statistics, error) {
	out := &store.Statistics{Now: s.db.Now()}
	if err := s.db.Readers.Row(ctx, queries.WaitingItems, nil, &out.InboxItems, &out.OldestItem); err != nil {
		return nil, fmt.Errorf("read what waits in inboxes: %w", err)
	}
	if err := s.db.Readers.Row(ctx, s.db.Dialect.Size, nil, &out.Bytes); err != nil {
		return nil, fmt.Errorf("read the size of the database: %w", err)
	}
	return out, nil
}
