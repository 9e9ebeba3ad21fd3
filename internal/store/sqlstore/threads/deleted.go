package threads

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// MarkDeleted implements store.Store. It waits for transactions that give the object a thread, and those that come later find the mark.
func (s Store) MarkDeleted(ctx context.Context, uid string) error {
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := t.Lock(uid); err != nil {
			return err
		}
		return t.Write(t.Ctx, queries.MarkDeleted, uid, t.Now)
	}, uid)
	if err != nil {
		return fmt.Errorf("mark the object %s as deleted: %w", uid, err)
	}
	return nil
}

// CheckObject fails with store.ErrObjectDeleted when the Thread object with this UID is marked as deleted. Otherwise it keeps
// others from marking it until the transaction ends.
func CheckObject(t *txn.Tx, uid string) error {
	if err := t.Lock(uid); err != nil {
		return err
	}
	var one int
	deleted, err := sqldb.Found(t.Row(t.Ctx, queries.Deleted, []any{uid}, &one))
	if err != nil {
		return err
	}
	if deleted {
		return fmt.Errorf("thread of the object %s: %w", uid, store.ErrObjectDeleted)
	}
	return nil
}
