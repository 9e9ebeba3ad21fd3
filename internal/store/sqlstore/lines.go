package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// Lines implements store.Store.
func (s *Store) Lines(ctx context.Context, threadID string, q store.LineQuery) ([]store.Event, error) {
	query, limit := qLines, q.Limit
	if limit <= 0 {
		limit = defaultEvents
	}
	if q.Tail > 0 {
		query, limit = qNewestLines, q.Tail
	}
	var lines []store.Event
	err := s.readers.snapshot(ctx, func(c *conn) (err error) {
		var key int64
		if err := c.row(ctx, qThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		lines, err = list(ctx, c, scanLine, query, key, q.After, q.RunID, q.RunID, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("log lines of thread %s: %w", threadID, err)
	}
	if q.Tail > 0 {
		slices.Reverse(lines)
	}
	return lines, nil
}

func scanLine(scan scanner) (*store.Event, error) {
	var e store.Event
	var data text
	if err := scan(&e.Seq, &e.Type, &e.RunID, &e.MessageID, &data, &e.CreatedAt); err != nil {
		return nil, err
	}
	e.Data = data.raw()
	return &e, nil
}

// trimLines drops the oldest log lines above keep.
func (t *tx) trimLines(h *head, keep int) error {
	if h.lastSeq <= int64(keep) {
		return nil // the thread cannot have that many lines
	}
	var n int
	if err := t.row(t.ctx, qCountLines, []any{h.key}, &n); err != nil {
		return err
	}
	if n <= keep || keep < 1 {
		return nil
	}
	// Drop one line more than necessary, because the record takes a place.
	var last store.Event
	dropped := int64(0)
	if err := t.rows(t.ctx, qOldestLines, []any{h.key, n - keep + 1}, func(scan scanner) error {
		e, err := scanLine(scan)
		if err != nil {
			return err
		}
		dropped += max(store.DroppedIn(e), 1)
		last = *e
		return nil
	}); err != nil {
		return err
	}
	record, err := json.Marshal(store.CodeLine{
		Level: "warn", Message: fmt.Sprintf("… %d older lines dropped: a thread keeps the newest %d", dropped, keep), Time: last.CreatedAt, Dropped: dropped,
	})
	if err != nil {
		return err
	}
	if err := t.write(t.ctx, qRemoveLines, h.key, last.Seq); err != nil {
		return err
	}
	return t.write(t.ctx, qReplaceLine, store.EventCodeLog, string(record), h.key, last.Seq)
}
