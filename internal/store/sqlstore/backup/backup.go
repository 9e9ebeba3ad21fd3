package backup

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Store implements store.BackupStore.
type Store struct{ DB *txn.DB }

// SchemaVersion implements store.BackupStore.
func (s Store) SchemaVersion(ctx context.Context) (version int64, err error) {
	err = s.DB.Readers.Row(ctx, queries.SchemaVersion, nil, &version)
	return version, err
}

// Backup implements store.BackupStore. The connection is kept from the first row to the last, however slowly the caller takes them.
func (s Store) Backup(ctx context.Context, ns store.Namespace, emit func(store.BackupRow) error) (*store.BackupSummary, error) {
	sum := &store.BackupSummary{Rows: map[string]int64{}, At: s.DB.Now()}
	keys := map[int64]bool{}
	err := s.DB.Readers.Interruptible().Snapshot(ctx, func(c *sqldb.Conn) error {
		if pausable := c.Dialect.Pausable; pausable != "" {
			if err := c.Write(ctx, pausable); err != nil {
				return err
			}
		}
		if err := c.Row(ctx, queries.SchemaVersion, nil, &sum.Schema); err != nil {
			return err
		}
		var one int
		if cut, err := sqldb.Found(c.Row(ctx, queries.BeingCut, []any{ns.Name}, &one)); err != nil {
			return err
		} else if cut {
			return store.ErrRemoving
		}
		for i := range tables {
			if err := dump(ctx, c, &tables[i], ns, sum, keys, emit); err != nil {
				return fmt.Errorf("table %s: %w", tables[i].name, err)
			}
		}
		of, args := belongsCondition("t", ns)
		return c.Rows(ctx, queries.ContentsOf(of), args, func(scan sqldb.Scanner) error {
			var b store.BackupContents
			err := scan(&b.Digest, &b.Object, &b.Size)
			sum.Contents = append(sum.Contents, b)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the rows of namespace %s: %w", ns.Name, err)
	}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		sum.KeyIDs = append(sum.KeyIDs, uint32(id))
	}
	return sum, nil
}

// dump emits the rows of one table.
func dump(ctx context.Context, c *sqldb.Conn, t *table, ns store.Namespace, sum *store.BackupSummary, keys map[int64]bool, emit func(store.BackupRow) error) error {
	row := newRow(t)
	read := func(remnants bool) error {
		query, args := t.selection(remnants, ns)
		return c.Rows(ctx, query, args, func(scan sqldb.Scanner) error {
			data, err := row.read(scan)
			if err != nil {
				return err
			}
			if t.name == "thread_env" {
				keys[row.number("key_id")] = true
			}
			sum.Rows[t.name]++
			return emit(store.BackupRow{Table: t.name, Data: data})
		})
	}
	if err := read(false); err != nil || !t.remnants {
		return err
	}
	return read(true)
}

// row is a row that is read.
type row struct {
	table  *table
	values []any
}

func newRow(t *table) *row {
	r := &row{table: t}
	for _, c := range t.columns {
		switch c.kind {
		case integer:
			r.values = append(r.values, new(sql.NullInt64))
		case float:
			r.values = append(r.values, new(float64))
		case bytes:
			r.values = append(r.values, new([]byte))
		default:
			r.values = append(r.values, new(sql.NullString))
		}
	}
	return r
}

// number returns an integer column of the row that was read last.
func (r *row) number(name string) int64 {
	for i, c := range r.table.columns {
		if n, ok := r.values[i].(*sql.NullInt64); ok && c.name == name {
			return n.Int64
		}
	}
	return 0
}

// read reads a row as an object.
func (r *row) read(scan sqldb.Scanner) (json.RawMessage, error) {
	if err := scan(r.values...); err != nil {
		return nil, err
	}
	fields := make(map[string]any, len(r.values))
	for i, c := range r.table.columns {
		switch v := r.values[i].(type) {
		case *sql.NullInt64:
			if v.Valid {
				fields[c.name] = v.Int64
			}
		case *float64:
			fields[c.name] = *v
		case *[]byte:
			fields[c.name] = base64.StdEncoding.EncodeToString(*v)
		case *sql.NullString:
			if v.Valid {
				fields[c.name] = v.String
			}
		}
	}
	return json.Marshal(fields)
}

// PinContents implements store.BackupStore.
func (s Store) PinContents(ctx context.Context, id string, ttl time.Duration) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := t.Write(t.Ctx, queries.EndedPins, id, t.Now); err != nil || ttl == 0 {
			return err
		}
		return t.Write(t.Ctx, queries.PinContents, id, t.Now+ttl.Microseconds())
	})
}

// ContentsHeld implements store.BackupStore.
func (s Store) ContentsHeld(ctx context.Context) (bool, error) {
	var one int
	return sqldb.Found(s.DB.Readers.Row(ctx, queries.ContentsHeld, []any{s.DB.Now()}, &one))
}
