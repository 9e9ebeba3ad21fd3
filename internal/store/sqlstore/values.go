package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

func (t *tx) putValue(h *head, op *store.PutValue) error {
	if op.Value == nil {
		n, err := t.exec(t.ctx, qDeleteValue, h.key, op.Key)
		if n > 0 {
			h.touch(0)
		}
		return err
	}
	h.touch(0)
	return t.write(t.ctx, qPutValue, h.key, op.Key, string(op.Value), t.now)
}

// Value implements store.Store.
func (s *Store) Value(ctx context.Context, threadID, key string) ([]byte, error) {
	var value string
	if err := s.readers.read(ctx, func(c *conn) error {
		return c.row(ctx, qValue, []any{threadID, key}, &value)
	}); err != nil {
		return nil, fmt.Errorf("value %q of thread %s: %w", key, threadID, err)
	}
	return []byte(value), nil
}
