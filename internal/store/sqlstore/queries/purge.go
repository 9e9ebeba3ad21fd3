package queries

// Queries that purge in bounded steps, and the probe of Ping.
const (
	PurgeMessages = `DELETE FROM message WHERE thread = ? AND seq IN (SELECT seq FROM message WHERE thread = ? ORDER BY seq LIMIT ?)`
	PurgeLog      = `DELETE FROM log WHERE thread = ? AND seq IN (SELECT seq FROM log WHERE thread = ? ORDER BY seq LIMIT ?)`
	PurgeKeys     = `DELETE FROM inbox_key WHERE thread = ? AND key IN (SELECT key FROM inbox_key WHERE thread = ? ORDER BY key LIMIT ?)`

	WriteProbe = `UPDATE probe SET written_at = ? WHERE id = 1`
	ReadProbe  = `SELECT written_at FROM probe WHERE id = 1`
	// SchemaReader returns the schema that releases must know at least to use the database.
	SchemaReader = `SELECT minimum FROM schema_reader WHERE id = 1`
)
