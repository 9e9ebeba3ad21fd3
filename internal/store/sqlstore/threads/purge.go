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
	var key int64
	var childOf string // the namespace of a child
	var remnants []int64
	for {
		key, childOf, remnants, err = s.endForPurge(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		var cut *txn.CutError
		if err != nil && !errors.As(err, &cut) {
			return nil, err
		}
		ended := err == nil
		if _, err := messages.FinishRemoval(ctx, s.DB, id); err != nil {
			return nil, err
		}
		if ended {
			break
		}
	}
	for more := true; more; {
		if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			more, err = relations.Release(t, key, id, releaseStep)
			return err
		}, id); err != nil {
			return nil, err
		}
	}
	if freed, err = messages.PurgeAllButMessages(ctx, s.DB, id, key); err != nil {
		return nil, err
	}
	if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error { return purgeRest(t, s.DB.Dialect, id, key) }, id); err != nil {
		return nil, err
	}
	if childOf != "" {
		_ = s.addManyChanges(ctx, childOf) // the thread is purged: the next purge or reservation makes up for what failed here
	}
	_ = messages.CollectLeft(ctx, s.DB, remnants) // the next sweep makes up for what failed here
	return freed, nil
}

// endForPurge ends a thread that is to be purged, and returns its key, its namespace if it is a child, and the remnants that it has read.
func (s Store) endForPurge(ctx context.Context, id string) (key int64, childOf string, remnants []int64, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		h, err := t.Head(id)
		if err != nil {
			return err
		}
		key = h.Key
		if h.ParentID != "" {
			childOf = h.Namespace
		}
		if err := h.Whole(); err != nil {
			return err
		}
		if err := t.Revoke(h); err != nil {
			return err
		}
		if err := runs.AddOpen(t, h); err != nil {
			return err
		}
		if remnants, err = messages.RemnantsOf(t, h); err != nil {
			return err
		}
		// The relationships are released one by one, with those that no message has.
		if err := messages.Remove(t, h, 0, nil, messages.NoneLate, false); err != nil {
			return err
		}
		h.Counts = nil               // it cannot be forked from here on
		h.Running, h.Taken = 0, true // no replica may take its run over
		h.Waiting, h.Queued = 0, 0   // its inbox is not read any more
		h.Touch(store.ChangedThread)
		if h.TerminatedAt != 0 {
			return nil
		}
		return end(t, h, store.ReasonPurged)
	}, id)
	return key, childOf, remnants, err
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
