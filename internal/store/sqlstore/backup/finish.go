package backup

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// FinishRestore implements store.BackupStore. The transaction that shows the threads has a fixed number of statements, however many rows
// there are, because a transaction is cut off after a time (sqldb.AnswerTimeout). Counting the rows comes before it, and is done again
// when rows have arrived meanwhile.
func (s Store) FinishRestore(ctx context.Context, r store.Restore, rows map[string]int64) error {
	for {
		id, checked := uuid.NewString(), false
		done, err := s.beginCheck(ctx, r, id)
		if err == nil && !done {
			checked, err = s.complete(ctx, r, rows, id)
		}
		if err == nil && checked {
			done, err = s.show(ctx, r, id)
		}
		if err != nil {
			return fmt.Errorf("finish the restore: %w", err)
		}
		if done {
			return nil
		}
	}
}

// beginCheck leaves a mark with an id, which lasts until a row arrives or the restore is finished. It reports whether the restore is finished already.
func (s Store) beginCheck(ctx context.Context, r store.Restore, id string) (done bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		w := newWriter(t, s.DB.Dialect, r)
		if done, err = w.repeated(); err != nil || done {
			return err // of an earlier attempt
		}
		if err := w.begin(); err != nil {
			return err
		}
		return t.Write(t.Ctx, queries.KeepRestoreRow, r.ID, r.Namespace, checkMark, id, "")
	}, stagingNamespace(r))
	return done, err
}

// show makes the threads visible, unless the mark of the check is gone.
func (s Store) show(ctx context.Context, r store.Restore, id string) (done bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		w := newWriter(t, s.DB.Dialect, r)
		if err := w.begin(); err != nil {
			return err
		}
		if done, err = w.repeated(); err != nil || done {
			return err
		}
		if done, err = (check{ctx: t.Ctx, q: t, r: r}).hasMark(id); err != nil || !done {
			return err
		}
		return w.showAll()
	}, stagingNamespace(r))
	return done, err
}

func (w *writer) showAll() error {
	t, r := w.t, w.r
	for i := range tables {
		if tables[i].scope == heads || tables[i].scope == ofNamespace {
			if err := w.insertKept(&tables[i]); err != nil {
				return err
			}
		}
	}
	for _, kind := range []string{sentContents, checkMark} {
		if err := t.Write(t.Ctx, queries.ForgetRestoreRows, r.ID, r.Namespace, kind); err != nil {
			return err
		}
	}
	if err := t.Write(t.Ctx, queries.KeepRestoreRow, r.ID, r.Namespace, finishedMark, "", ""); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.ShowUsage, r.Namespace, stagingNamespace(r)); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.ShowRemnants, stagingNamespace(r)); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.ShowThreads, r.Namespace, stagingNamespace(r)); err != nil {
		return err
	}
	t.Notifications = append(t.Notifications, store.Notification{Changed: store.ChangedThread})
	return nil
}

// BindEffects implements store.BackupStore. Its transaction has a fixed number of statements, too.
func (s Store) BindEffects(ctx context.Context, r store.Restore, effects map[string]string) error {
	wanted := pairsOf(effects)
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		w, k := newWriter(t, s.DB.Dialect, r), check{ctx: t.Ctx, q: t, dialect: s.DB.Dialect, r: r}
		var bound []*table
		for i := range tables {
			if tables[i].scope == ofEffects {
				bound = append(bound, &tables[i])
			}
		}
		for _, table := range bound {
			if err := k.names(table, wanted); err != nil {
				return err
			}
		}
		if err := k.checkObjects(wanted); err != nil {
			return err
		}
		for _, table := range bound {
			if err := w.insertKept(table, wanted); err != nil {
				return err
			}
		}
		t.Notifications = append(t.Notifications, store.Notification{EffectID: store.AnyEffect, Changed: store.ChangedFiring})
		return nil
	}, stagingNamespace(r))
	if err != nil {
		return fmt.Errorf("give effects to their new objects: %w", err)
	}
	return nil
}

// checkObjects returns an error when a thread that firings of wanted effects are to reach has no object.
func (k check) checkObjects(wanted string) error {
	firing := byName("effect_firing")
	query := "SELECT t.id, t.name" + firing.from(k.dialect) + " JOIN thread t ON t.id = x.thread_id WHERE t.retained_at <> 0 AND x.status IN (?, ?, ?) LIMIT 1"
	args := slices.Concat([]any{wanted}, keptArgs(k.r, firing), []any{string(store.FiringPending), string(store.FiringQueued), string(store.FiringRunning)})
	var id, name string
	found, err := sqldb.Found(k.q.Row(k.ctx, query, args, &id, &name))
	if err == nil && found {
		err = fmt.Errorf("thread %s (%s) has effects that are due: %w", id, name, store.ErrRetained)
	}
	return err
}

// AbandonRestore implements store.BackupStore. It begins with a mark, so that a FinishRestore that has counted the rows before does not
// show what is left of them.
func (s Store) AbandonRestore(ctx context.Context, r store.Restore) (freed []string, err error) {
	if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := t.Lock(stagingNamespace(r)); err != nil {
			return err
		}
		return t.Write(t.Ctx, queries.KeepRestoreRow, r.ID, r.Namespace, abandonedMark, "", "")
	}, stagingNamespace(r)); err != nil {
		return nil, fmt.Errorf("begin to remove the rows of a restore: %w", err)
	}
	if freed, err = s.removeAll(ctx, r); err != nil {
		return freed, fmt.Errorf("remove the rows of a restore: %w", err)
	}
	return freed, s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		kinds := []string{sentContents, checkMark, abandonedMark}
		for i := range tables {
			kinds = append(kinds, tables[i].name)
		}
		for _, kind := range kinds {
			if err := t.Write(t.Ctx, queries.ForgetRestoreRows, r.ID, r.Namespace, kind); err != nil {
				return err
			}
		}
		return nil
	}, stagingNamespace(r))
}

// staged is a thread of a restore that is not visible.
type staged struct {
	key int64
	id  string
}

// removeAll removes the threads of a restore that are not visible.
func (s Store) removeAll(ctx context.Context, r store.Restore) (freed []string, err error) {
	for {
		all, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*staged, error) {
			var t staged
			return &t, scan(&t.key, &t.id)
		}, queries.StagedKeys, stagingNamespace(r))
		if err != nil || len(all) == 0 {
			return freed, err
		}
		for i := range all {
			gone, err := s.remove(ctx, stagingNamespace(r), all[i])
			freed = append(freed, gone...)
			if err != nil {
				return freed, err
			}
		}
	}
}

// remove removes a staged thread, in transactions that end soon. When somebody else has removed it meanwhile, it removes nothing more: SQLite may
// have given its key to another thread.
func (s Store) remove(ctx context.Context, namespace string, one staged) (freed []string, err error) {
	rows := messages.Purge{ID: one.id, Key: one.key}
	for more := true; more; {
		var rest messages.Purge
		var some []string
		if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			rest, some, more = rows, nil, false // the function may run again
			var is int
			if found, err := sqldb.Found(t.Row(t.Ctx, queries.IsStaged, []any{one.key, one.id, namespace}, &is)); err != nil || !found {
				return err
			}
			n, err := t.Exec(t.Ctx, queries.PurgeMessages, one.key, one.key, messages.Slice)
			if err != nil {
				return err
			}
			if more = n == messages.Slice; more {
				return nil
			}
			if rest, some, more, err = rows.Some(t); err != nil || more {
				return err
			}
			for _, query := range s.DB.Dialect.Purge {
				if err := t.Write(t.Ctx, query, one.key); err != nil {
					return err
				}
			}
			if err := t.Write(t.Ctx, queries.DeleteArgs, one.id); err != nil {
				return err
			}
			return t.Write(t.Ctx, queries.DeleteThread, one.key)
		}, one.id); err != nil {
			return freed, err
		}
		rows, freed = rest, append(freed, some...)
	}
	return freed, nil
}
