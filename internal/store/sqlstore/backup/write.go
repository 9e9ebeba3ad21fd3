package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Kinds of restore_row that are no tables.
const (
	// sentContents has the digests of the contents that were sent.
	sentContents = "contents sent"
	// finishedMark says that the restore was finished and nothing has arrived since.
	finishedMark = "finished"
	// checkMark says that no row has arrived since a FinishRestore began to check them, and that they are not visible yet. Its digest is the
	// id of the check.
	checkMark = "checked"
	// abandonedMark says that an AbandonRestore has begun and has not ended.
	abandonedMark = "abandoned"
)

// lookUpAtOnce is how many threads are looked up in one query.
const lookUpAtOnce = 500

// writer writes rows of a restore in one transaction.
type writer struct {
	t       *txn.Tx
	dialect *sqldb.Dialect
	r       store.Restore
	arrived map[string]bool // threads of the restore that were looked up
}

func newWriter(t *txn.Tx, d *sqldb.Dialect, r store.Restore) *writer {
	return &writer{t: t, dialect: d, r: r, arrived: map[string]bool{}}
}

// begin orders the transaction among those of the restore, also of other replicas. It returns an error while the restore is being
// abandoned, because no transaction sees all of what is being removed.
func (w *writer) begin() error {
	if err := w.t.Lock(stagingNamespace(w.r)); err != nil {
		return err
	}
	abandoned, err := w.hasMark(abandonedMark)
	if err == nil && abandoned {
		err = wrongf("the restore is being abandoned: abandon it again, and once that has succeeded send the rows of the backup from the first one")
	}
	return err
}

// hasMark reports whether the restore has set a mark.
func (w *writer) hasMark(mark string) (bool, error) {
	var marks int64
	err := w.t.Row(w.t.Ctx, queries.CountRestoreRows, []any{w.r.ID, w.r.Namespace, mark}, &marks)
	return marks > 0, err
}

// isFinished reports whether the restore is finished.
func (w *writer) isFinished() (bool, error) {
	var staged, restored int64
	if err := w.t.Row(w.t.Ctx, queries.StagedThreads, []any{stagingNamespace(w.r)}, &staged); err != nil || staged > 0 {
		return false, err
	}
	err := w.t.Row(w.t.Ctx, queries.FinishedThreads, []any{w.r.Namespace, w.r.ID, keptMark(w.r)}, &restored)
	return restored > 0, err
}

// repeated reports whether the restore was finished before, and nothing has arrived since. A finished restore of a backup without threads
// has left no rows to tell it by, but finishedMark, which is removed when something arrives.
func (w *writer) repeated() (bool, error) {
	if finished, err := w.isFinished(); err != nil || finished {
		return finished, err
	}
	return w.hasMark(finishedMark)
}

// checkUnfinished returns store.ErrRestored when the restore is finished. Its rows are visible then, and what came late would be left over.
func (w *writer) checkUnfinished() error {
	finished, err := w.isFinished()
	if err == nil && finished {
		err = store.ErrRestored
	}
	return err
}

// placeAll writes rows, or keeps them until the restore is finished.
func (w *writer) placeAll(all []*decoded) error {
	for i, d := range all {
		if d.table.isKept() {
			if err := w.keep(d); err != nil {
				return err
			}
			continue
		}
		if err := w.lookUp(all[i:]); err != nil {
			return err
		}
		fresh := &decoded{table: d.table, columns: d.columns, values: slices.Clone(d.values)} // the transaction may be run again
		fresh.adjust(w.r, w.t.Now)
		if err := w.insert(fresh); err != nil {
			return err
		}
	}
	return nil
}

// keep keeps a row until the restore is finished.
func (w *writer) keep(d *decoded) error {
	fields := make(map[string]any, len(d.values))
	for i, c := range d.columns {
		switch v := d.values[i].(type) {
		case nil:
		case string:
			fields[c.name] = strings.ReplaceAll(v, "\x00", "\uFFFD") // PostgreSQL reads no JSON with NUL
		default:
			fields[c.name] = v
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(d.data)
	return w.t.Write(w.t.Ctx, queries.KeepRestoreRow, w.r.ID, w.r.Namespace, d.table.name, hex.EncodeToString(sum[:]), string(data))
}

// lookUp looks up the threads that the first row belongs to, unless they are known, and with them those of the rows that follow.
func (w *writer) lookUp(rows []*decoded) error {
	known := func(id string) bool { return w.arrived[id] }
	if !slices.ContainsFunc(rows[0].owners(w.r), func(id string) bool { return !known(id) }) {
		return nil
	}
	var ids []string
	for _, d := range rows[:min(len(rows), lookUpAtOnce)] {
		if !d.table.isKept() {
			ids = append(ids, slices.DeleteFunc(d.owners(w.r), known)...)
		}
	}
	var id, namespace, restored string
	return w.t.Rows(w.t.Ctx, threadOrigins(w.dialect), []any{setOf(ids)}, func(scan sqldb.Scanner) error {
		err := scan(&id, &namespace, &restored)
		if namespace == stagingNamespace(w.r) {
			w.arrived[id] = true
		}
		return err
	})
}

// owners returns the ids of the threads that the row belongs to.
func (d *decoded) owners(r store.Restore) (ids []string) {
	for i, c := range d.columns {
		if !d.table.ownedThrough(c) {
			continue
		}
		id, _ := d.values[i].(string)
		if strings.HasPrefix(id, remnant) && c.kind == threadID {
			id = remnantID(r, id)
		}
		ids = append(ids, id)
	}
	return ids
}

// insert writes the row. Threads that it belongs to must be of the restore.
func (w *writer) insert(d *decoded) error {
	args := make([]any, 0, len(d.values)+2)
	for i, c := range d.columns {
		args = append(args, d.values[i])
		if !d.table.ownedThrough(c) {
			continue
		}
		if id, _ := d.values[i].(string); !w.arrived[id] {
			return notArrivedError(d.table, id)
		}
		args = append(args, stagingNamespace(w.r))
	}
	return w.t.Write(w.t.Ctx, d.table.insertion(d.columns), args...)
}

// notArrivedError returns the error for rows of a thread that the restore has not brought.
func notArrivedError(table *table, id string) error {
	return wrongf("a row of table %s belongs to thread %s, which has not arrived: send the rows of the backup in their order, from the first one if the restore was abandoned meanwhile", table.name, id)
}

// foreignError returns the error for rows of a thread that is not of the restore.
func foreignError(table *table, id string) error {
	return wrongf("a row of table %s names thread %s of another namespace: the backup is damaged, or was changed", table.name, id)
}

// threadOrigins returns the query for threads with the ids of a set.
func threadOrigins(d *sqldb.Dialect) string {
	return `SELECT t.id, t.namespace, t.restored FROM (` + d.Keys + `) p JOIN thread t ON t.id = p.key`
}

// setOf returns texts as the keys of a JSON object. Those that no text of PostgreSQL can be are left out.
func setOf(texts []string) string {
	set := make(map[string]string, len(texts))
	for _, s := range texts {
		set[s] = ""
	}
	return pairsOf(set)
}

func pairsOf(pairs map[string]string) string {
	sendable := make(map[string]string, len(pairs))
	for k, v := range pairs {
		if !strings.Contains(k+v, "\x00") {
			sendable[k] = v
		}
	}
	data, _ := json.Marshal(sendable) // texts can always be written
	return string(data)
}
