package threads

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// reasonDeleted is the reason of the lifecycle entry of a purged thread.
const reasonDeleted = "deleted"

// PurgeThread implements store.Store. It first revokes the thread's lease and ends its conversation, so that no reader
// sees a part of one. Then it removes the rows in slices, and at last the thread. An interrupted purge can be repeated. What it leaves of
// remnants that only this thread has read is for SweepRemnants.
func (s Store) PurgeThread(ctx context.Context, id string) (freed []string, err error) {
	e, err := s.endForPurge(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if freed, err = s.purge(ctx, id, e.key); err != nil {
		return nil, err
	}
	if e.childOf != "" {
		_ = s.addManyChanges(ctx, e.childOf) // the thread is purged: the next purge or reservation makes up for what failed here
	}
	_ = messages.CollectLeft(ctx, s.DB, e.remnants) // the next sweep makes up for what failed here
	return freed, nil
}

// purge removes the rows of a thread that has ended for that, in transactions that end soon however many there are. Most threads take one. It
// returns the contents that no file has any more. When somebody else has purged the thread meanwhile, it removes nothing more: SQLite may have given
// its key to another thread.
func (s Store) purge(ctx context.Context, id string, key int64) (freed []string, err error) {
	rows := messages.Purge{ID: id, Key: key}
	for more := true; more; {
		var rest messages.Purge
		var some []string
		if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			rest, some, more = rows, nil, false // the function may run again
			h, err := t.Head(id)
			if errors.Is(err, store.ErrNotFound) || (err == nil && h.Key != key) {
				return nil
			}
			if err != nil {
				return err
			}
			if more, err = relations.Release(t, key, id, releaseStep); err != nil || more {
				return err
			}
			if rest, some, more, err = rows.Some(t); err != nil || more {
				return err
			}
			t.Forget(id)
			return purgeRest(t, s.DB.Dialect, id, key)
		}, id); err != nil {
			return nil, err
		}
		rows, freed = rest, append(freed, some...)
	}
	return freed, nil
}

// endedThread is a thread that was ended for its purge.
type endedThread struct {
	key      int64
	childOf  string  // the namespace of a child
	remnants []int64 // those that it has read
	cuts     bool    // whether some of its messages are still to be removed
}

// endForPurge ends a thread that is to be purged, and removes its messages.
func (s Store) endForPurge(ctx context.Context, id string) (e endedThread, err error) {
	for {
		err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			e, err = endForPurge(t, id)
			return err
		}, id)
		var cut *txn.CutError // of an earlier removal
		if err != nil && !errors.As(err, &cut) {
			return e, err
		}
		if err != nil || e.cuts {
			if _, err := messages.FinishRemoval(ctx, s.DB, id); err != nil {
				return e, err
			}
		}
		if err == nil {
			return e, nil
		}
	}
}

func endForPurge(t *txn.Tx, id string) (e endedThread, err error) {
	h, err := t.Head(id)
	if err != nil {
		return e, err
	}
	e.key = h.Key
	if h.ParentID != "" {
		e.childOf = h.Namespace
	}
	if err := h.Whole(); err != nil {
		return e, err
	}
	if err := t.Revoke(h); err != nil {
		return e, err
	}
	if err := runs.AddOpen(t, h); err != nil {
		return e, err
	}
	if e.remnants, err = messages.RemnantsOf(t, h); err != nil {
		return e, err
	}
	// The relationships are released one by one, with those that no message has.
	if err := messages.Remove(t, h, 0, nil, messages.NoneLate, false); err != nil {
		return e, err
	}
	e.cuts = h.Cuts()
	h.Counts = nil               // it cannot be forked from here on
	h.Running, h.Taken = 0, true // no replica may take its run over
	h.Waiting, h.Queued = 0, 0   // its inbox is not read any more
	h.Touch(store.ChangedThread)
	if h.TerminatedAt != 0 {
		return e, nil
	}
	return e, end(t, h, store.ReasonPurged)
}

// releaseStep is how many relationships one transaction of a purge removes. Each also writes the other thread.
const releaseStep = 100

// purgeRest removes the thread with the little that still refers to it.
func purgeRest(t *txn.Tx, d *sqldb.Dialect, id string, key int64) error {
	for more := true; more; { // those that were made meanwhile
		var err error
		if more, err = relations.Release(t, key, id, releaseStep); err != nil {
			return err
		}
	}
	for _, query := range d.Purge {
		if err := t.Write(t.Ctx, query, key); err != nil {
			return err
		}
	}
	for _, query := range []string{queries.DeleteFirings, queries.DeleteArgs} {
		if err := t.Write(t.Ctx, query, id); err != nil {
			return err
		}
	}
	if err := deleteTasks(t, id, key); err != nil {
		return err
	}
	var root string
	if err := t.Row(t.Ctx, queries.Root, []any{key}, &root); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.LogLifecycle, store.LifecycleThreadDestroyed, "", "", "", reasonDeleted, t.Now, key); err != nil {
		return err
	}
	if err := runs.PurgeUsage(t, id, root); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.DeleteThread, key); err != nil {
		return err
	}
	t.Notifications = append(t.Notifications, store.Notification{ThreadID: id, Changed: store.ChangedThread})
	return nil
}
