package backup

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/files"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// stagingNamespace returns the namespace that threads have while they are restored. A thread without a head is not visible in any case; with
// this one it also has no owner.
func stagingNamespace(r store.Restore) string {
	return queries.StagingPrefix + r.ID + "/" + r.Namespace
}

// keptMark returns what the column restored has for threads that were retained when the backup was made. They are adopted as any others that
// are retained, but are the restore's.
func keptMark(r store.Restore) string { return queries.RestoredKept + r.ID }

// RestoreState implements store.BackupStore.
func (s Store) RestoreState(ctx context.Context, r store.Restore, threads []string) (*store.RestoreState, error) {
	state := &store.RestoreState{}
	err := s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		if err := c.Row(ctx, queries.StagedThreads, []any{stagingNamespace(r)}, &state.Staged); err != nil {
			return err
		}
		if err := c.Row(ctx, queries.RestoredThreads, []any{r.Namespace, r.ID}, &state.Restored); err != nil {
			return err
		}
		var finished int64
		if err := c.Row(ctx, queries.FinishedThreads, []any{r.Namespace, r.ID, keptMark(r)}, &finished); err != nil {
			return err
		}
		state.Finished = state.Staged == 0 && finished > 0
		var one int
		var err error
		if state.Effects, err = sqldb.Found(c.Row(ctx, queries.EffectRowsWait, []any{r.ID, r.Namespace}, &one)); err != nil {
			return err
		}
		state.Taken, err = takenThreads(ctx, c, r, threads)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("see how far the restore has come: %w", err)
	}
	return state, nil
}

// takenThreads returns the threads that exist and are not of the restore.
func takenThreads(ctx context.Context, c *sqldb.Conn, r store.Restore, threads []string) (others []string, err error) {
	foreign := map[string]bool{}
	for some := range slices.Chunk(threads, lookUpAtOnce) {
		var id, namespace, restored string
		err := c.Rows(ctx, threadOrigins(c.Dialect), []any{setOf(some)}, func(scan sqldb.Scanner) error {
			err := scan(&id, &namespace, &restored)
			foreign[id] = namespace != stagingNamespace(r) && (restored != r.ID && restored != keptMark(r) || namespace != r.Namespace)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, id := range threads {
		if foreign[id] {
			others = append(others, id)
		}
	}
	return others, nil
}

// decoded is a row of a backup.
type decoded struct {
	table   *table
	columns []column
	values  []any // as the columns take them
	data    json.RawMessage
}

// decode checks a row against the columns of its table. Columns that releases have added since the oldest backup may be missing.
func decode(b store.BackupRow) (*decoded, error) {
	t := byName(b.Table)
	if t == nil {
		return nil, wrongf("the backup has rows of a table %q, which this release does not have: restore it with the release that made it, or a later one", b.Table)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b.Data, &fields); err != nil || fields == nil {
		return nil, wrongf("a row of table %s is not an object: the backup is damaged", b.Table)
	}
	d := &decoded{table: t, data: b.Data}
	for _, c := range t.columns {
		raw, there := fields[c.name]
		delete(fields, c.name)
		if !there && !c.nullable && c.since == 0 {
			return nil, wrongf("a row of table %s has no column %s: the backup is damaged, or another release made it", b.Table, c.name)
		}
		v := c.missingValue()
		if there {
			var err error
			if v, err = c.decode(raw); err != nil {
				return nil, wrongf("column %s of a row of table %s cannot be read: the backup is damaged", c.name, b.Table)
			}
		}
		d.columns, d.values = append(d.columns, c), append(d.values, v)
	}
	for name := range fields {
		return nil, wrongf("the backup has a column %s of table %s, which this release does not have: restore it with the release that made it, or a later one", name, b.Table)
	}
	return d, nil
}

// wrongf returns an error that says what is wrong with a backup.
func wrongf(format string, args ...any) error {
	return &store.BackupError{Message: fmt.Sprintf(format, args...)}
}

// missingValue returns what the column is in rows that do not have it.
func (c column) missingValue() any {
	switch {
	case c.nullable:
		return nil
	case c.kind == integer:
		return int64(0)
	}
	return ""
}

func (c column) decode(raw json.RawMessage) (any, error) {
	switch c.kind {
	case integer:
		var n int64
		err := json.Unmarshal(raw, &n)
		return n, err
	case float:
		var n float64
		err := json.Unmarshal(raw, &n)
		return n, err
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	if c.kind == bytes {
		return base64.StdEncoding.DecodeString(s)
	}
	return s, nil
}

// text returns a column of type text or thread.
func (d *decoded) text(name string) string {
	for i, c := range d.columns {
		if s, ok := d.values[i].(string); ok && c.name == name {
			return s
		}
	}
	return ""
}

func (d *decoded) number(name string) int64 {
	for i, c := range d.columns {
		if n, ok := d.values[i].(int64); ok && c.name == name {
			return n
		}
	}
	return 0
}

// set changes a column. It does nothing where the row has none of this name.
func (d *decoded) set(name string, v any) {
	for i, c := range d.columns {
		if c.name == name {
			d.values[i] = v
		}
	}
}

// remnantID returns the id of a remnant in this database, which may have the original still.
func remnantID(r store.Restore, id string) string {
	return remnant + uuid.NewSHA1(uuid.NameSpaceOID, []byte(stagingNamespace(r)+"/"+id)).String()
}

// adjust changes a row that is written as it arrives for its new place: its namespace, its owner, and leases, which have ended.
func (d *decoded) adjust(r store.Restore, now int64) {
	for i, c := range d.columns {
		if s, ok := d.values[i].(string); ok && strings.HasPrefix(s, remnant) && (c.kind == threadID || d.table.scope == threadRows && c.name == "id") {
			d.values[i] = remnantID(r, s)
		}
	}
	d.set("namespace", r.Namespace)
	switch d.table.name {
	case "thread":
		d.set("namespace", stagingNamespace(r))
		d.set("restored", "")
		d.set("namespace_uid", r.NamespaceUID)
		d.set("waits", "")
		if strings.HasPrefix(d.text("id"), remnant) {
			d.set("terminated_reason", "")
			d.set("parent_id", "")
			d.set("reference", "")
		} else if d.number("retained_at") == 0 {
			d.set("retained_at", now)
			d.set("restored", r.ID)
		} else {
			d.set("restored", keptMark(r))
		}
	case "inbox_key":
		if d.number("used_at") == 0 {
			d.set("used_at", now) // its age counts from now, as after the migration
		}
	case "lease": // a holder of the past must not write
		d.set("owner", "")
		d.set("running_in", nil)
		d.set("expires_at", int64(0))
		d.set("epoch", d.number("epoch")+1)
	}
}

// RestoreRows implements store.BackupStore.
func (s Store) RestoreRows(ctx context.Context, r store.Restore, rows []store.BackupRow) error {
	all := make([]*decoded, len(rows))
	for i := range rows {
		d, err := decode(rows[i])
		if err != nil {
			return err
		}
		all[i] = d
	}
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		w := newWriter(t, s.DB.Dialect, r)
		if err := w.begin(); err != nil {
			return err
		}
		if err := w.checkUnfinished(); err != nil {
			return err
		}
		for _, mark := range []string{finishedMark, checkMark} {
			if err := t.Write(t.Ctx, queries.ForgetRestoreRows, r.ID, r.Namespace, mark); err != nil {
				return err
			}
		}
		return w.placeAll(all)
	}, stagingNamespace(r))
}

// RestoreContents implements store.BackupStore.
func (s Store) RestoreContents(ctx context.Context, r store.Restore, c store.BackupContents, uploaded int64) (freed []string, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		freed = nil
		if err := newWriter(t, s.DB.Dialect, r).checkUnfinished(); err != nil {
			return err
		}
		var one int
		if err := t.Row(t.Ctx, queries.StagedDigest, []any{c.Digest, stagingNamespace(r)}, &one); err != nil {
			return err
		}
		op := &store.PutFile{File: store.File{Digest: c.Digest, Size: c.Size}, Object: c.Object, Uploaded: uploaded, Instead: c.Instead}
		err := files.ReferToContents(t, op)
		freed = op.Freed
		if err != nil {
			return err
		}
		return t.Write(t.Ctx, queries.KeepRestoreRow, r.ID, r.Namespace, sentContents, c.Digest, "")
	}, stagingNamespace(r))
	if err != nil {
		return nil, fmt.Errorf("contents %s: %w", c.Digest, err)
	}
	return freed, nil
}
