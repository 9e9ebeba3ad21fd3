package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// FinishRestore implements store.BackupStore.
func (s Store) FinishRestore(ctx context.Context, r store.Restore, rows map[string]int64) error {
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		w := newWriter(t, r)
		if repeated, err := w.repeated(); err != nil || repeated {
			return err // of an earlier attempt
		}
		if err := w.complete(rows); err != nil {
			return err
		}
		for i := range tables {
			if tables[i].scope == heads || tables[i].scope == ofNamespace {
				if err := w.release(&tables[i], nil); err != nil {
					return err
				}
			}
		}
		if err := t.Write(t.Ctx, queries.ForgetRestoreRows, r.ID, r.Namespace, sentContents); err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.KeepRestoreRow, r.ID, r.Namespace, finishedMark, "", ""); err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.ShowRemnants, staging(r)); err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.ShowThreads, r.Namespace, staging(r)); err != nil {
			return err
		}
		t.Notifications = append(t.Notifications, store.Notification{Changed: store.ChangedThread})
		return nil
	}, staging(r))
	if err != nil {
		return fmt.Errorf("finish the restore: %w", err)
	}
	return nil
}

// complete reports as an error what has not arrived, and what is not of the restore.
func (w *writer) complete(rows map[string]int64) error {
	t, r := w.t, w.r
	for i := range tables {
		table := &tables[i]
		var have int64
		var err error
		switch table.scope {
		case threadRows:
			err = t.Row(t.Ctx, `SELECT count(*) FROM thread WHERE namespace = ?`, []any{staging(r)}, &have)
		case ofThreads:
			err = t.Row(t.Ctx, `SELECT count(*) FROM `+table.name+` x JOIN thread t ON t.key = x.thread WHERE t.namespace = ?`, []any{staging(r)}, &have)
		case arguments:
			err = t.Row(t.Ctx, `SELECT count(*) FROM `+table.name+` x JOIN thread t ON t.id = x.thread_id WHERE t.namespace = ?`, []any{staging(r)}, &have)
		default:
			err = t.Row(t.Ctx, queries.CountRestoreRows, []any{r.ID, r.Namespace, table.name}, &have)
		}
		if err != nil {
			return err
		}
		if have != rows[table.name] {
			return wrong("%d rows of table %s have arrived of %d: send the rows of the backup again", have, table.name, rows[table.name])
		}
		if err := w.ownStagedNames(table); err != nil {
			return err
		}
	}
	missing, err := sqldb.Column[string](t.Ctx, t, queries.MissingContents, staging(r), r.ID, r.Namespace, sentContents)
	if err == nil && len(missing) > 0 {
		err = &store.MissingContentsError{Digests: missing}
	}
	return err
}

// BindEffects implements store.BackupStore.
func (s Store) BindEffects(ctx context.Context, r store.Restore, effects map[string]string) error {
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		w := newWriter(t, r)
		waiting := map[string]bool{}
		for i := range tables {
			if tables[i].scope != ofEffects {
				continue
			}
			err := w.release(&tables[i], func(d *decoded) (bool, error) {
				id, wanted := effects[d.text("effect_id")]
				d.set("effect_id", id)
				if of := d.text("thread_id"); wanted && of != "" && d.table.name == "effect_firing" && !store.FiringStatus(d.text("status")).Over() {
					waiting[of] = true
				}
				return wanted, nil
			})
			if err != nil {
				return err
			}
		}
		for id := range waiting {
			var name string
			err := t.Row(t.Ctx, queries.RetainedName, []any{id}, &name)
			if err == nil {
				return fmt.Errorf("thread %s (%s) has effects that are due: %w", id, name, store.ErrRetained)
			}
			if !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		t.Notifications = append(t.Notifications, store.Notification{EffectID: store.AnyEffect, Changed: store.ChangedFiring})
		return nil
	}, staging(r))
	if err != nil {
		return fmt.Errorf("give effects to their new objects: %w", err)
	}
	return nil
}

// AbandonRestore implements store.BackupStore.
func (s Store) AbandonRestore(ctx context.Context, r store.Restore) (freed []string, err error) {
	type staged struct {
		key int64
		id  string
	}
	for {
		all, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*staged, error) {
			var t staged
			return &t, scan(&t.key, &t.id)
		}, queries.StagedKeys, staging(r))
		if err != nil {
			return freed, err
		}
		for _, one := range all {
			gone, err := s.remove(ctx, one.key, one.id)
			freed = append(freed, gone...)
			if err != nil {
				return freed, fmt.Errorf("remove the rows of a restore: %w", err)
			}
		}
		if len(all) == 0 {
			break
		}
	}
	return freed, s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for i := range tables {
			if err := t.Write(t.Ctx, queries.ForgetRestoreRows, r.ID, r.Namespace, tables[i].name); err != nil {
				return err
			}
		}
		return t.Write(t.Ctx, queries.ForgetRestoreRows, r.ID, r.Namespace, sentContents)
	}, staging(r))
}

// remove removes a thread that is not visible, in bounded steps.
func (s Store) remove(ctx context.Context, key int64, id string) (freed []string, err error) {
	for n := messages.Slice; n == messages.Slice; {
		if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			n, err = t.Exec(t.Ctx, queries.PurgeMessages, key, key, messages.Slice)
			return err
		}, id); err != nil {
			return nil, err
		}
	}
	if freed, err = messages.PurgeAllButMessages(ctx, s.DB, id, key); err != nil {
		return nil, err
	}
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for _, query := range s.DB.Dialect.Purge {
			if err := t.Write(t.Ctx, query, key); err != nil {
				return err
			}
		}
		if err := t.Write(t.Ctx, queries.DeleteArgs, id); err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.DeleteThread, key); err != nil {
			return err
		}
		return nil
	}, id)
	return freed, err
}
