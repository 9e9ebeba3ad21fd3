// Package values holds the key-values of threads, the state of their code, and the key-value service.
package values

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Put sets a value of the key-value store; nil removes it.
func Put(t *txn.Tx, h *txn.Head, op *store.PutValue) error {
	if op.Value == nil {
		n, err := t.Exec(t.Ctx, queries.DeleteValue, h.Key, op.Key)
		if n > 0 {
			h.Touch(0)
		}
		return err
	}
	h.Touch(0)
	return t.Write(t.Ctx, queries.PutValue, h.Key, op.Key, string(op.Value), t.Now)
}

// Value implements store.Store.
func (s Store) Value(ctx context.Context, threadID, key string) ([]byte, error) {
	var value string
	if err := s.DB.Readers.Row(ctx, queries.Value, []any{threadID, key}, &value); err != nil {
		return nil, fmt.Errorf("value %q of thread %s: %w", key, threadID, err)
	}
	return []byte(value), nil
}

// Values implements store.SessionStore.
func (s Store) Values(ctx context.Context, threadID string, limit int, maxBytes int64) ([]store.StateEntry, error) {
	entries, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.StateEntry, error) {
		var e store.StateEntry
		var value sql.NullString
		err := scan(&e.Key, &value)
		if value.Valid {
			e.Value = json.RawMessage(value.String)
		}
		return &e, err
	}, queries.Values, maxBytes, threadID, int64(limit))
	if err != nil {
		return nil, fmt.Errorf("values of thread %s: %w", threadID, err)
	}
	return entries, nil
}

// Store reads values.
type Store struct{ DB *txn.DB }
