package threads

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/files"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// reasonDeleted is the reason of the lifecycle entry of a purged thread.
const reasonDeleted = "deleted"

// PurgeThread implements store.Store. It first revokes the thread's lease, then removes what may be many rows in steps,
// and at last the rest in one transaction. An interrupted purge can be repeated.
func (s Store) PurgeThread(ctx context.Context, id string) (freed []string, err error) {
	var key int64
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		h, err := t.Head(id)
		if err != nil {
			return err
		}
		key = h.Key
		if err := t.Revoke(h); err != nil {
			return err
		}
		if err := runs.AddOpen(t, h); err != nil {
			return err
		}
		if err := messages.Leave(t, h, 0); err != nil {
			return err
		}
		h.Counts = nil               // nobody may fork it from here on
		h.Running, h.Taken = 0, true // nobody may take its run over
		h.Touch(0)
		return Terminate(t, h, &store.Terminate{Reason: store.ReasonPurged})
	}, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for more := true; more; {
		if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			more, err = relations.Release(t, key, id, releaseStep)
			return err
		}, id); err != nil {
			return nil, err
		}
	}
	for _, query := range []string{queries.PurgeMemory, queries.PurgeMessages, queries.PurgeLog, queries.PurgeKeys} {
		for n := int64(messages.PurgeStep); n == messages.PurgeStep; {
			if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
				n, err = t.Exec(t.Ctx, query, key, key, messages.PurgeStep)
				return err
			}, id); err != nil {
				return nil, err
			}
		}
	}
	if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		freed, err = purgeRest(t, s.DB.Dialect, id, key)
		return err
	}, id); err != nil {
		return nil, err
	}
	return freed, messages.CollectLeft(ctx, s.DB)
}

// releaseStep is how many relationships one transaction of a purge removes. Each also writes the other thread.
const releaseStep = 100

// purgeRest removes the thread with everything that refers to it, and returns the objects that nothing refers to any
// more.
func purgeRest(t *txn.Tx, d *sqldb.Dialect, id string, key int64) ([]string, error) {
	var freed []string
	for more := true; more; { // those that were made meanwhile
		var err error
		if more, err = relations.Release(t, key, id, releaseStep); err != nil {
			return nil, err
		}
	}
	for _, query := range d.Purge {
		if err := t.Write(t.Ctx, query, key); err != nil {
			return nil, err
		}
	}
	had, err := sqldb.Column[string](t.Ctx, t, queries.Digests, key)
	if err != nil {
		return nil, err
	}
	for _, query := range []string{queries.DeleteFirings, queries.DeleteArgs} {
		if err := t.Write(t.Ctx, query, id); err != nil {
			return nil, err
		}
	}
	if err := deleteTasks(t, id, key); err != nil {
		return nil, err
	}
	var root string
	if err := t.Row(t.Ctx, queries.Root, []any{key}, &root); err != nil {
		return nil, err
	}
	if err := t.Write(t.Ctx, queries.LogLifecycle, store.LifecycleThreadDestroyed, "", "", "", reasonDeleted, t.Now, key); err != nil {
		return nil, err
	}
	if err := runs.PurgeUsage(t, id, root); err != nil {
		return nil, err
	}
	if err := t.Write(t.Ctx, queries.DeleteThread, key); err != nil {
		return nil, err
	}
	for _, d := range had {
		if err := files.Free(t, &freed, d); err != nil {
			return nil, err
		}
	}
	t.Notifications = append(t.Notifications, store.Notification{ThreadID: id, Changed: store.ChangedThread})
	return freed, nil
}
