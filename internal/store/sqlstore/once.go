package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Queries about idempotency keys.
const (
	qRecorded     = `SELECT i.fingerprint, i.result FROM idempotency i JOIN thread t ON t.key = i.thread WHERE t.id = ? AND i.key = ?`
	qRecordedByID = `SELECT fingerprint, result FROM idempotency WHERE thread = ? AND key = ?`
	qRecord       = `INSERT INTO idempotency (thread, key, fingerprint, result, created_at) VALUES (?, ?, ?, ?, ?)`
	qSweepKeys    = `DELETE FROM idempotency WHERE (thread, key) IN
		(SELECT thread, key FROM idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?)`
)

// applyOnce applies ops, unless the first is a Once whose key was already used.
func (t *tx) applyOnce(h *head, ops []store.Op) error {
	if len(ops) == 0 {
		return nil
	}
	once, ok := ops[0].(*store.Once)
	if !ok {
		return t.applyAll(h, ops)
	}
	once.Existed, once.Recorded = false, nil
	var fingerprint string
	var result text
	switch err := t.row(t.ctx, qRecordedByID, []any{h.key, once.Key}, &fingerprint, &result); {
	case err == nil && fingerprint != once.Fingerprint:
		return fmt.Errorf("thread %s: %w", h.id, store.ErrKeyReused)
	case err == nil:
		once.Existed, once.Recorded = true, result.raw()
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	if err := t.applyAll(h, ops[1:]); err != nil {
		return err
	}
	var record json.RawMessage
	if once.Result != nil {
		var err error
		if record, err = once.Result(); err != nil {
			return err
		}
	}
	return t.write(t.ctx, qRecord, h.key, once.Key, once.Fingerprint, nullJSON(record), t.now)
}

// Recorded implements store.Store.
func (s *Store) Recorded(ctx context.Context, threadID, key string) (fingerprint string, result json.RawMessage, err error) {
	var column text
	err = s.readers.read(ctx, func(c *conn) error {
		return c.row(ctx, qRecorded, []any{threadID, key}, &fingerprint, &column)
	})
	if err != nil {
		return "", nil, fmt.Errorf("idempotency key of thread %s: %w", threadID, err)
	}
	return fingerprint, column.raw(), nil
}

// SweepKeys implements store.Store.
func (s *Store) SweepKeys(ctx context.Context, before int64, limit int) (removed int64, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		removed, err = t.exec(t.ctx, qSweepKeys, before, limit)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sweep idempotency keys: %w", err)
	}
	return removed, nil
}
