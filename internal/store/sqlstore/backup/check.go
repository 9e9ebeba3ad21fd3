package backup

import (
	"context"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// check finds out whether a restore can be finished.
type check struct {
	ctx     context.Context
	q       sqldb.Querier
	dialect *sqldb.Dialect
	r       store.Restore
}

// complete reports as an error what has not arrived, and what is not of the restore. It reads every row, so no transaction that writes
// waits for it. It returns false when the mark of the check was gone already: the rows may be visible by now.
func (s Store) complete(ctx context.Context, r store.Restore, rows map[string]int64, id string) (checked bool, err error) {
	err = s.DB.Readers.Interruptible().Snapshot(ctx, func(c *sqldb.Conn) error {
		k := check{ctx: ctx, q: c, dialect: s.DB.Dialect, r: r}
		if checked, err = k.hasMark(id); err != nil || !checked {
			return err
		}
		for i := range tables {
			if err := k.table(&tables[i], rows[tables[i].name]); err != nil {
				return err
			}
		}
		missing, err := sqldb.Column[string](ctx, c, queries.MissingContents, stagingNamespace(r), r.ID, r.Namespace, sentContents)
		if err == nil && len(missing) > 0 {
			err = &store.MissingContentsError{Digests: missing}
		}
		return err
	})
	return checked, err
}

// hasMark reports whether the mark of a check is there.
func (k check) hasMark(id string) (bool, error) {
	var one int
	return sqldb.Found(k.q.Row(k.ctx, queries.RestoreMark, []any{k.r.ID, k.r.Namespace, checkMark, id}, &one))
}

// table checks the rows of a table. Those of effects may name threads that are not theirs if they are not wanted in the end.
func (k check) table(t *table, want int64) error {
	have, err := k.count(t)
	if err != nil {
		return err
	}
	if have != want {
		return wrongf("%d rows of table %s have arrived of %d: send the rows of the backup again", have, t.name, want)
	}
	if t.scope == heads {
		if err := k.checkBelongs(t); err != nil {
			return err
		}
	}
	if t.scope == ofEffects {
		return nil
	}
	return k.names(t)
}

func (k check) count(t *table) (have int64, err error) {
	switch t.scope {
	case threadRows:
		err = k.q.Row(k.ctx, `SELECT count(*) FROM thread WHERE namespace = ?`, []any{stagingNamespace(k.r)}, &have)
	case ofThreads:
		err = k.q.Row(k.ctx, `SELECT count(*) FROM `+t.name+` x JOIN thread t ON t.key = x.thread WHERE t.namespace = ?`, []any{stagingNamespace(k.r)}, &have)
	case arguments:
		err = k.q.Row(k.ctx, `SELECT count(*) FROM `+t.name+` x JOIN thread t ON t.id = x.thread_id WHERE t.namespace = ?`, []any{stagingNamespace(k.r)}, &have)
	default:
		err = k.q.Row(k.ctx, queries.CountRestoreRows, keptArgs(k.r, t), &have)
	}
	return have, err
}

// checkBelongs returns an error when the thread of a kept row has not arrived.
func (k check) checkBelongs(t *table) error {
	var id string
	query := "SELECT x.thread" + t.from(k.dialect) + " WHERE NOT EXISTS (SELECT 1 FROM thread t WHERE t.id = x.thread AND t.namespace = ?) LIMIT 1"
	found, err := sqldb.Found(k.q.Row(k.ctx, query, append(keptArgs(k.r, t), stagingNamespace(k.r)), &id))
	if err == nil && found {
		err = notArrivedError(t, id)
	}
	return err
}

// names returns an error when a row names a thread of another namespace. A thread that is gone may be named. Rows of effects need the map
// of those that are wanted.
func (k check) names(t *table, effects ...any) error {
	from, cond, args := t.from(k.dialect), "", slices.Concat(effects, keptArgs(k.r, t))
	switch t.scope {
	case threadRows:
		from, cond, args = " FROM thread x", "x.namespace = ? AND ", []any{stagingNamespace(k.r)}
	case ofThreads:
		from, cond, args = " FROM "+t.name+" x JOIN thread t ON t.key = x.thread", "t.namespace = ? AND ", []any{stagingNamespace(k.r)}
	}
	args = append(args, stagingNamespace(k.r), k.r.Namespace)
	for _, c := range t.columns {
		if c.kind != named {
			continue
		}
		query := "SELECT o.id" + from + " JOIN thread o ON o.id = x." + c.name + " WHERE " + cond + "o.namespace <> ? AND o.namespace <> ? LIMIT 1"
		var id string
		found, err := sqldb.Found(k.q.Row(k.ctx, query, args, &id))
		if err == nil && found {
			err = foreignError(t, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
