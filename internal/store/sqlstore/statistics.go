package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
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

type tableRows struct {
	name string
	rows int64
}

// TableRows implements store.StatisticsStore.
func (s *Store) TableRows(ctx context.Context) (map[string]int64, error) {
	all, err := sqldb.ReadList(ctx, s.db.Readers, func(scan sqldb.Scanner) (*tableRows, error) {
		var t tableRows
		return &t, scan(&t.name, &t.rows)
	}, s.db.Dialect.Rows)
	if err != nil {
		return nil, fmt.Errorf("count the rows of tables: %w", err)
	}
	rows := make(map[string]int64, len(all))
	for _, t := range all {
		rows[t.name] = t.rows
	}
	return rows, nil
}

// ContentsBytes implements store.StatisticsStore.
func (s *Store) ContentsBytes(ctx context.Context) (n int64, err error) {
	if err := s.db.Readers.Interruptible().Row(ctx, queries.ContentsBytes, nil, &n); err != nil {
		return 0, fmt.Errorf("sum up the contents of files: %w", err)
	}
	return n, nil
}
