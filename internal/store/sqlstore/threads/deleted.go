package threads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// leave keeps every replica from working on a thread, if it belongs to the object with this UID. Its holder can write nothing more,
// and is told at once. A child gives up its place among those of its parent: whatever becomes of its data, it does not come back as that child.
func leave(t *txn.Tx, uid, threadID string) error {
	h, err := t.Head(threadID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || h.Deleting() {
		return err
	}
	owner, retained, err := ownerOf(t, h)
	if err != nil || retained || owner != uid {
		return err
	}
	if err := t.Revoke(h); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.ChildEnded, h.Key); err != nil {
		return err
	}
	h.Touch(store.ChangedStop)
	return t.Suspend(h, txn.AsleepDeleting)
}

// refusedFor is how long a refusal holds. It ends by itself, so that a crash does not keep a thread from being stored for good.
const refusedFor = time.Minute

// refusal is the mark of an object whose thread was refused. No UID has a slash.
func refusal(uid string) string { return "refused/" + uid }

// Refuse implements store.Store. A transaction that stores the thread has done so before, or finds the mark.
func (s Store) Refuse(ctx context.Context, threadID string) (refused bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := t.Lock(threadID); err != nil {
			return err
		}
		var key int64
		stored, err := sqldb.Found(t.Row(t.Ctx, queries.ThreadKey, []any{threadID}, &key))
		if refused = !stored; err != nil || stored {
			return err
		}
		return t.Write(t.Ctx, queries.MarkRefused, refusal(threadID), t.Now)
	}, threadID)
	return refused && err == nil, err
}

// Readmit implements store.Store.
func (s Store) Readmit(ctx context.Context, threadID string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		_, err := t.Exec(t.Ctx, queries.Readmit, refusal(threadID))
		return err
	}, threadID)
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
	deleted, err := sqldb.Found(t.Row(t.Ctx, queries.DeletedOrRefused, []any{uid, refusal(uid), t.Now - refusedFor.Microseconds()}, &one))
	if err != nil {
		return err
	}
	if deleted {
		return fmt.Errorf("thread of the object %s: %w", uid, store.ErrObjectDeleted)
	}
	return nil
}
