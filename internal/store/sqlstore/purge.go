package sqlstore

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// purgeStep is how many rows of a kind one transaction of a purge removes, so that other writers need not wait long.
const purgeStep = 1000

// reasonDeleted is the reason of the lifecycle entry of a purged thread.
const reasonDeleted = "deleted"

// PurgeThread implements store.Store. It first revokes the thread's lease, then removes what may be many rows in steps,
// and at last the rest in one transaction. An interrupted purge can be repeated.
func (s *Store) PurgeThread(ctx context.Context, id string) (freed []string, err error) {
	var key int64
	err = s.writer.do(ctx, func(t *tx) error {
		h, err := t.head(id)
		if err != nil {
			return err
		}
		key = h.key
		if err := t.revoke(h); err != nil {
			return err
		}
		if err := t.addOpenRuns(h); err != nil {
			return err
		}
		if err := t.leave(h, 0); err != nil {
			return err
		}
		h.running, h.taken = 0, true // nobody may take its run over
		h.touch(0)
		return t.terminate(h, &store.Terminate{Reason: store.ReasonPurged})
	}, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, query := range []string{qPurgeMemory, qPurgeMessages, qPurgeLog, qPurgeKeys} {
		for n := int64(purgeStep); n == purgeStep; {
			if err := s.writer.do(ctx, func(t *tx) (err error) {
				n, err = t.exec(t.ctx, query, key, key, purgeStep)
				return err
			}, id); err != nil {
				return nil, err
			}
		}
	}
	if err := s.writer.do(ctx, func(t *tx) error {
		freed, err = t.purgeRest(s.dialect, id, key)
		return err
	}, id); err != nil {
		return nil, err
	}
	return freed, collectLeft(ctx, s.db)
}

// purgeRest removes the thread with everything that refers to it, and returns the objects that nothing refers to any
// more.
func (t *tx) purgeRest(d *dialect, id string, key int64) ([]string, error) {
	var freed []string
	for _, query := range d.purge {
		if err := t.write(t.ctx, query, key); err != nil {
			return nil, err
		}
	}
	had, err := column[string](t.ctx, t, qDigests, key)
	if err != nil {
		return nil, err
	}
	if err := t.write(t.ctx, qDeleteFirings, id); err != nil {
		return nil, err
	}
	var root string
	if err := t.row(t.ctx, qRoot, []any{key}, &root); err != nil {
		return nil, err
	}
	if err := t.write(t.ctx, qLogLifecycle, store.LifecycleThreadDestroyed, "", "", "", reasonDeleted, t.now, key); err != nil {
		return nil, err
	}
	if err := t.purgeUsage(id, root); err != nil {
		return nil, err
	}
	if err := t.write(t.ctx, qDeleteThread, key); err != nil {
		return nil, err
	}
	for _, d := range had {
		if err := t.free(&freed, d); err != nil {
			return nil, err
		}
	}
	t.notifications = append(t.notifications, store.Notification{ThreadID: id, Changed: store.ChangedThread})
	return freed, nil
}
