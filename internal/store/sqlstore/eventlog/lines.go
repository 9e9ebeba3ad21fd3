package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Lines implements store.Store.
func (s Store) Lines(ctx context.Context, threadID string, q store.LineQuery) ([]store.Event, error) {
	query, limit := queries.Lines, q.Limit
	if limit <= 0 {
		limit = sqldb.DefaultEvents
	}
	if q.Tail > 0 {
		query, limit = queries.NewestLines, q.Tail
	}
	var lines []store.Event
	err := s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, key int64) (err error) {
		lines, err = sqldb.List(ctx, c, scanLine, query, key, q.After, q.RunID, q.RunID, limit)
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

func scanLine(scan sqldb.Scanner) (*store.Event, error) {
	var e store.Event
	var data sqldb.Text
	if err := scan(&e.Seq, &e.Type, &e.RunID, &e.MessageID, &data, &e.CreatedAt); err != nil {
		return nil, err
	}
	e.Data = data.Raw()
	return &e, nil
}

// TrimLines drops the oldest log lines, so that at most keep remain. The oldest line that remains says how many were dropped.
func TrimLines(t *txn.Tx, h *txn.Head, keep int) error {
	if h.LastSeq <= int64(keep) {
		return nil // the thread cannot have that many lines
	}
	var n int
	if err := t.Row(t.Ctx, queries.CountLines, []any{h.Key}, &n); err != nil {
		return err
	}
	if n <= keep || keep < 1 {
		return nil
	}
	// Drop one line more than necessary, because the record takes a place.
	var last store.Event
	dropped := int64(0)
	if err := t.Rows(t.Ctx, queries.OldestLines, []any{h.Key, n - keep + 1}, func(scan sqldb.Scanner) error {
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
	if err := t.Write(t.Ctx, queries.RemoveLines, h.Key, last.Seq); err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.ReplaceLine, store.EventCodeLog, string(record), h.Key, last.Seq)
}
