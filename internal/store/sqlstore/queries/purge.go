package queries

import "strings"

// Queries that purge in bounded slices, and the probe of Ping.
const (
	// PurgeMessages removes messages of a remnant.
	PurgeMessages = `DELETE FROM message WHERE thread = ? AND seq IN (SELECT seq FROM message WHERE thread = ? ORDER BY seq LIMIT ?)`

	PurgeFiles = `DELETE FROM file WHERE thread = ? AND path IN (SELECT path FROM file WHERE thread = ? ORDER BY path LIMIT ?) RETURNING digest`

	WriteProbe = `UPDATE probe SET written_at = ? WHERE id = 1`
	ReadProbe  = `SELECT written_at FROM probe WHERE id = 1`
	// SchemaReader returns the schema that releases must know at least to use the database.
	SchemaReader = `SELECT minimum FROM schema_reader WHERE id = 1`
)

// PurgeSlice removes some rows of a thread from a table. Its parameters are the thread's key twice and how many; with ByID
// they are the thread's id and how many.
type PurgeSlice struct {
	Query string
	ByID  bool
	rows  string // the rows of the thread, whose parameter is its key, or with ByID its id
}

// PurgeSlices is all tables in which a thread may have many rows, but those of messages and files.
var PurgeSlices = []PurgeSlice{
	ofThread("embedding", "seq"), ofThread("log", "seq"), ofThread("inbox_key", "key"), ofThread("inbox", "seq"), ofThread("run", "id"),
	ofThread("kv", "key"), ofThread("idempotency", "key"), ofThread("thread_state", "key"), ofThread("thread_env", "name"),
	ofThread("message_block", "at"), ofThread("message_segment", "lo"),
	{Query: `DELETE FROM task_usage WHERE thread = ? AND (run, task) IN (SELECT run, task FROM task_usage WHERE thread = ? ORDER BY run, task LIMIT ?)`,
		rows: `task_usage WHERE thread = ?`},
	{Query: `DELETE FROM effect_firing WHERE (effect_id, due, thread_id) IN
		(SELECT effect_id, due, thread_id FROM effect_firing WHERE thread_id = ? AND thread_id <> '' LIMIT ?)`, ByID: true,
		rows: `effect_firing WHERE thread_id = ? AND thread_id <> ''`},
	{Query: `DELETE FROM effect_args WHERE id IN (SELECT id FROM effect_args WHERE thread_id = ? LIMIT ?)`, ByID: true, rows: `effect_args WHERE thread_id = ?`},
	{Query: `DELETE FROM child_task WHERE id IN (SELECT id FROM child_task WHERE parent_id = ? LIMIT ?)`, ByID: true, rows: `child_task WHERE parent_id = ?`},
}

func ofThread(table, column string) PurgeSlice {
	return PurgeSlice{Query: `DELETE FROM ` + table + ` WHERE thread = ? AND ` + column +
		` IN (SELECT ` + column + ` FROM ` + table + ` WHERE thread = ? ORDER BY ` + column + ` LIMIT ?)`,
		rows: table + ` WHERE thread = ?`}
}

// HasRows asks for each of PurgeSlices whether there are rows. Its parameters are the thread's key, or with ByID its id.
var HasRows = hasRows()

func hasRows() string {
	var each []string
	for _, slice := range PurgeSlices {
		each = append(each, `EXISTS (SELECT 1 FROM `+slice.rows+`)`)
	}
	return `SELECT ` + strings.Join(each, ", ")
}
