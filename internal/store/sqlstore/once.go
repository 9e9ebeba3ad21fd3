package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// applyOnce applies ops, unless the first is a Once whose key was already used.
func applyOnce(t *txn.Tx, h *txn.Head, ops []store.Op) error {
	if len(ops) == 0 {
		return nil
	}
	once, ok := ops[0].(*store.Once)
	if !ok {
		return applyAll(t, h, ops)
	}
	once.Existed, once.Recorded = false, nil
	var fingerprint string
	var result sqldb.Text
	switch err := t.Row(t.Ctx, queries.RecordedByID, []any{h.Key, once.Key}, &fingerprint, &result); {
	case err == nil && fingerprint != once.Fingerprint:
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrKeyReused)
	case err == nil:
		once.Existed, once.Recorded = true, result.Raw()
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	if err := applyAll(t, h, ops[1:]); err != nil {
		return err
	}
	var record json.RawMessage
	if once.Result != nil {
		var err error
		if record, err = once.Result(); err != nil {
			return err
		}
	}
	return t.Write(t.Ctx, queries.Record, h.Key, once.Key, once.Fingerprint, sqldb.NullJSON(record), t.Now)
}

// Recorded implements store.Store.
func (s *Store) Recorded(ctx context.Context, threadID, key string) (fingerprint string, result json.RawMessage, err error) {
	var column sqldb.Text
	err = s.db.Readers.Row(ctx, queries.Recorded, []any{threadID, key}, &fingerprint, &column)
	if err != nil {
		return "", nil, fmt.Errorf("idempotency key of thread %s: %w", threadID, err)
	}
	return fingerprint, column.Raw(), nil
}
