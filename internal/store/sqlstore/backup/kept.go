package backup

import (
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// Rows that would be visible at once are kept in restore_row until the restore is finished. Then one statement writes all rows of a table.

// isKept reports whether rows of the table are kept until the restore is finished.
func (t *table) isKept() bool {
	return t.scope == heads || t.scope == ofNamespace || t.scope == ofEffects
}

// rows returns the query for the kept rows of the table. It takes keptArgs.
func (t *table) rows(d *sqldb.Dialect) string {
	fields := make([]sqldb.Field, len(t.columns))
	for i, c := range t.columns {
		fields[i] = sqldb.Field{Name: c.name, Type: "text"}
		switch c.kind {
		case integer:
			fields[i].Type = "bigint"
		case float:
			fields[i].Type = "double precision"
		}
	}
	return d.Objects("restore_row", "data", "r.restore = ? AND r.namespace = ? AND r.kind = ?", fields)
}

func keptArgs(r store.Restore, t *table) []any { return []any{r.ID, r.Namespace, t.name} }

// from returns the FROM clause, with the alias x, for the rows of the table that are kept until the restore is finished. For a table of effects,
// the query takes one more argument before keptArgs: a JSON object with the ids of effects as keys. The clause then leaves out the rows of
// other effects, and x.mapped is the value of the key.
func (t *table) from(d *sqldb.Dialect) string {
	rows := t.rows(d)
	if t.scope == ofEffects {
		rows = d.Mapped(rows, "effect_id")
	}
	return " FROM (" + rows + ") x"
}

// insertKept inserts the rows of a table that a restore has kept, and then forgets all kept rows of the table. Rows of an earlier
// namespace of the same name give way to them. A table of effects takes one argument: the map from ids in the backup to ids of the
// new objects, as JSON. Rows of other effects are not inserted.
func (w *writer) insertKept(t *table, wanted ...any) error {
	names, values := make([]string, 0, len(t.columns)+1), make([]string, 0, len(t.columns)+1)
	var args []any
	for _, c := range t.columns {
		value := "x." + c.name
		switch expr, changed := t.changed[c.name]; {
		case changed:
			value = expr
		case c.name == "namespace":
			value, args = "CAST(? AS TEXT)", append(args, w.r.Namespace)
		case c.name == "effect_id":
			value = "x.mapped"
		case c.kind == threadID:
			value = "t.key"
		case c.since != 0 && c.kind == integer: // an earlier release has kept the row
			value = "COALESCE(" + value + ", 0)"
		case c.since != 0:
			value = "COALESCE(" + value + ", '')"
		}
		names, values = append(names, c.name), append(values, value)
	}
	if t.hasOwner() {
		names, values, args = append(names, "namespace_uid"), append(values, "CAST(? AS TEXT)"), append(args, w.r.NamespaceUID)
	}
	query := "SELECT " + strings.Join(values, ", ") + t.from(w.dialect)
	args = slices.Concat(args, wanted, keptArgs(w.r, t))
	if t.scope == heads {
		query, args = query+" JOIN thread t ON t.id = x.thread AND t.namespace = ?", append(args, stagingNamespace(w.r))
	}
	if err := w.evictNamesakes(t); err != nil {
		return err
	}
	query = "INSERT INTO " + t.name + " (" + strings.Join(names, ", ") + ") " + query + " WHERE true ON CONFLICT DO NOTHING"
	if err := w.t.Write(w.t.Ctx, query, args...); err != nil {
		return err
	}
	return w.t.Write(w.t.Ctx, queries.ForgetRestoreRows, keptArgs(w.r, t)...)
}

// evictNamesakes removes the rows of an earlier namespace of the same name that have the keys of kept rows.
func (w *writer) evictNamesakes(t *table) error {
	if !t.hasOwner() || w.r.NamespaceUID == "" {
		return nil
	}
	keys := strings.Join(t.key, ", ")
	query := "DELETE FROM " + t.name + " WHERE namespace = ? AND namespace_uid NOT IN ('', ?) AND (" + keys + ") IN (SELECT " + keys + t.from(w.dialect) + ")"
	return w.t.Write(w.t.Ctx, query, append([]any{w.r.Namespace, w.r.NamespaceUID}, keptArgs(w.r, t)...)...)
}
