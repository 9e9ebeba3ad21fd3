package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// The state is spelled out as in the index run_unsettled; otherwise the index is not used.
const (
	qUnsettled = `SELECT t.id, r.id FROM run r JOIN thread t ON t.key = r.thread
		WHERE r.state = '{"postRun":true}' AND r.ended_at < ? ORDER BY r.ended_at LIMIT ?`
	qSettle = `UPDATE run SET state = NULL WHERE thread = (SELECT key FROM thread WHERE id = ?) AND id = ? AND state = '{"postRun":true}'`
)

// Unsettled implements store.Store.
func (s *Store) Unsettled(ctx context.Context, before int64, limit int) ([]store.RunRef, error) {
	refs, err := readList(ctx, s.readers, func(scan scanner) (*store.RunRef, error) {
		var r store.RunRef
		return &r, scan(&r.ThreadID, &r.RunID)
	}, qUnsettled, before, pageSize(limit))
	if err != nil {
		return nil, fmt.Errorf("list runs with unfinished post-run tasks: %w", err)
	}
	return refs, nil
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, run store.RunRef) error {
	return s.writer.do(ctx, func(t *tx) error {
		return t.write(t.ctx, qSettle, run.ThreadID, run.RunID)
	}, run.ThreadID)
}
