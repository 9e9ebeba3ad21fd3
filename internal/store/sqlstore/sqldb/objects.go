package sqldb

import "strings"

// Field is a field of JSON objects, with PostgreSQL's name of the type that it has.
type Field struct{ Name, Type string }

// ObjectsInPostgres is Dialect.Objects of PostgreSQL.
func ObjectsInPostgres(table, column, cond string, fields []Field) string {
	columns := make([]string, len(fields))
	for i, f := range fields {
		columns[i] = `"` + f.Name + `" ` + f.Type
	}
	return `SELECT o.* FROM ` + table + ` r CROSS JOIN LATERAL jsonb_to_record(CAST(r.` + column + ` AS jsonb)) AS o(` + strings.Join(columns, ", ") + `) WHERE ` + cond
}

// ObjectsInSQLite is Dialect.Objects of SQLite, where a value brings its type.
func ObjectsInSQLite(table, column, cond string, fields []Field) string {
	columns := make([]string, len(fields))
	for i, f := range fields {
		columns[i] = `json_extract(r.` + column + `, '$.` + f.Name + `') AS "` + f.Name + `"`
	}
	return `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + table + ` r WHERE ` + cond
}

// MappedInPostgres is Dialect.Mapped of PostgreSQL. A join would do, but without statistics of the rows the planner may compare each row
// with each key. So each row looks its key up in the object, which is read once.
func MappedInPostgres(query, column string) string {
	return `SELECT * FROM (SELECT q.*, (SELECT CAST(CAST(? AS TEXT) AS jsonb)) ->> q.` + column + ` AS mapped FROM (` + query + `) q) m WHERE m.mapped IS NOT NULL`
}

// MappedInSQLite is Dialect.Mapped of SQLite, which builds an index of a materialized table.
func MappedInSQLite(query, column string) string {
	return `WITH pairs AS MATERIALIZED (SELECT key, value FROM json_each(?)) SELECT q.*, pairs.value AS mapped FROM (` + query + `) q JOIN pairs ON pairs.key = q.` + column
}
