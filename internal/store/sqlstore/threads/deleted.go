package threads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// MarkDeleted implements store.Store. It waits for transactions that give the object a thread, and those that come later find the mark.
func (s Store) MarkDeleted(ctx context.Context, uid, threadID string, also ...string) error {
	uids := append([]string{uid}, also...)
	slices.Sort(uids) // transactions lock in one order
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for _, uid := range uids {
			if err := t.Lock(uid); err != nil {
				return err
			}
			if err := t.Write(t.Ctx, queries.MarkDeleted, uid, t.Now); err != nil {
				return err
			}
		}
		return leave(t, uid, threadID)
	}, append(uids, threadID)...)
	if err != nil {
		return fmt.Errorf("mark the objects %s as deleted: %w", strings.Join(uids, ", "), err)
	}
	return nil
}

// leave keeps everybody from working on a thread, if it belongs to the object with this UID. Its holder can write nothing more, and is
// told at once.
func leave(t *txn.Tx, uid, threadID string) error {
	h, err := t.Head(threadID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || h.Deleting() {
		return err
	}
	var id, owner string
	var retained int64
	if err := t.Row(t.Ctx, queries.OrphanOwner, []any{h.Key}, &id, &owner, &retained); err != nil {
		return err
	}
	if cmp.Or(owner, id) != uid || retained != 0 {
		return nil
	}
	if err := t.Revoke(h); err != nil {
		return err
	}
	h.Touch(store.ChangedStop)
	return t.Suspend(h, txn.AsleepDeleting)
}

// MarkedDeleted implements store.Store.
func (s Store) MarkedDeleted(ctx context.Context, uid string) (bool, error) {
	found, err := sqldb.ReadColumn[int](ctx, s.DB.Readers, queries.Deleted, uid)
	return len(found) > 0, err
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
