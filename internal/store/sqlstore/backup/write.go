package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// sentContents is the kind under which restore_row has the digests of the contents that were sent. No table has this name.
const sentContents = "contents sent"

// finishedMark is the kind under which restore_row has that the restore was finished and nothing has arrived since. No table has this name.
const finishedMark = "finished"

// writer writes rows of a restore in one transaction.
type writer struct {
	t *txn.Tx
	r store.Restore
	// arrived are threads of the restore, and mayName are other ids that its rows may name. Each was looked up once.
	arrived, mayName map[string]bool
	// origin returns the namespace of a thread. It returns false when there is no such thread.
	origin func(id string) (namespace string, there bool, err error)
}

func newWriter(t *txn.Tx, r store.Restore) *writer {
	return &writer{t: t, r: r, arrived: map[string]bool{}, mayName: map[string]bool{}, origin: func(id string) (namespace string, there bool, err error) {
		var restored string
		there, err = sqldb.Found(t.Row(t.Ctx, queries.ThreadOrigin, []any{id}, &namespace, &restored))
		return namespace, there, err
	}}
}

// finished reports whether the restore is finished.
func (w *writer) finished() (bool, error) {
	var staged, restored int64
	if err := w.t.Row(w.t.Ctx, queries.StagedThreads, []any{staging(w.r)}, &staged); err != nil || staged > 0 {
		return false, err
	}
	err := w.t.Row(w.t.Ctx, queries.FinishedThreads, []any{w.r.Namespace, w.r.ID, kept(w.r)}, &restored)
	return restored > 0, err
}

// repeated reports whether the restore was finished before, and nothing has arrived since. Only this tells of a backup without threads.
func (w *writer) repeated() (bool, error) {
	if finished, err := w.finished(); err != nil || finished {
		return finished, err
	}
	var marks int64
	err := w.t.Row(w.t.Ctx, queries.CountRestoreRows, []any{w.r.ID, w.r.Namespace, finishedMark}, &marks)
	return marks > 0, err
}

// unfinished returns store.ErrRestored when the restore is finished. Its rows are visible then, and what came late would be left over.
func (w *writer) unfinished() error {
	finished, err := w.finished()
	if err == nil && finished {
		err = store.ErrRestored
	}
	return err
}

// place writes a row, or keeps it until the restore is finished.
func (w *writer) place(d *decoded) error {
	switch d.table.scope {
	case heads, ofNamespace, ofEffects:
		sum := sha256.Sum256(d.data)
		return w.t.Write(w.t.Ctx, queries.KeepRestoreRow, w.r.ID, w.r.Namespace, d.table.name, hex.EncodeToString(sum[:]), string(d.data))
	}
	fresh := &decoded{table: d.table, columns: d.columns, values: slices.Clone(d.values)} // the transaction may be run again
	fresh.adjust(w.r, w.t.Now)
	return w.insert(fresh)
}

// release writes the rows of a table that were kept. edit may change a row, or report that it is not wanted.
func (w *writer) release(table *table, edit func(*decoded) (wanted bool, err error)) error {
	kept, err := sqldb.Column[string](w.t.Ctx, w.t, queries.RestoreRows, w.r.ID, w.r.Namespace, table.name)
	if err != nil {
		return err
	}
	for _, data := range kept {
		d, err := decode(store.BackupRow{Table: table.name, Data: []byte(data)})
		if err != nil {
			return err
		}
		d.adjust(w.r, w.t.Now)
		if edit != nil {
			if wanted, err := edit(d); err != nil {
				return err
			} else if !wanted {
				continue
			}
		}
		if err := w.ownNames(d); err != nil {
			return err
		}
		if err := w.insert(d); err != nil {
			return err
		}
	}
	return w.t.Write(w.t.Ctx, queries.ForgetRestoreRows, w.r.ID, w.r.Namespace, table.name)
}

// insert writes the row. Threads that it belongs to must be of the restore.
func (w *writer) insert(d *decoded) error {
	args := make([]any, 0, len(d.values)+2)
	for i, c := range d.columns {
		args = append(args, d.values[i])
		if c.kind == threadID || (d.table.scope == arguments && c.name == "thread_id") {
			id, _ := d.values[i].(string)
			if err := w.hasArrived(d.table, id); err != nil {
				return err
			}
			args = append(args, staging(w.r))
		}
	}
	if d.table.owned() && w.r.NamespaceUID != "" {
		key := []any{w.r.Namespace}
		for _, name := range d.table.key {
			key = append(key, d.text(name))
		}
		if _, err := w.t.Exec(w.t.Ctx, d.table.eviction(), append(key, w.r.NamespaceUID)...); err != nil {
			return err
		}
	}
	return w.t.Write(w.t.Ctx, d.table.insertion(d.columns), args...)
}

func (w *writer) hasArrived(table *table, id string) error {
	if w.arrived[id] {
		return nil
	}
	namespace, there, err := w.origin(id)
	if err != nil {
		return err
	}
	if !there || namespace != staging(w.r) {
		return wrong("a row of table %s belongs to thread %s, which has not arrived: send the rows of the backup in their order, from the first one if the restore was abandoned meanwhile", table.name, id)
	}
	w.arrived[id] = true
	return nil
}

// ownNames returns an error when a row that was kept names a thread of another namespace. A thread that is gone may be named.
func (w *writer) ownNames(d *decoded) error {
	for i, c := range d.columns {
		id, _ := d.values[i].(string)
		if c.kind != named || id == "" || w.arrived[id] || w.mayName[id] {
			continue
		}
		namespace, there, err := w.origin(id)
		if err != nil {
			return err
		}
		if there && namespace != w.r.Namespace && namespace != staging(w.r) {
			return foreign(d.table, id)
		}
		w.mayName[id] = true
	}
	return nil
}

// ownStagedNames returns an error when a row of a table that is written as it arrives names a thread of another namespace.
func (w *writer) ownStagedNames(table *table) error {
	for _, c := range table.columns {
		query := table.foreignNames(c)
		if query == "" {
			continue
		}
		var id string
		found, err := sqldb.Found(w.t.Row(w.t.Ctx, query, []any{staging(w.r), staging(w.r), w.r.Namespace}, &id))
		if err != nil {
			return err
		}
		if found {
			return foreign(table, id)
		}
	}
	return nil
}

func foreign(table *table, id string) error {
	return wrong("a row of table %s names thread %s of another namespace: the backup is damaged, or was changed", table.name, id)
}
