package queries

// Queries that search messages.
const (
	SearchColumns = `t.id, t.namespace, t.name, t.title, ` + MessageColumns
	SearchJoin    = ` JOIN thread t ON t.key = m.thread JOIN thread_head h ON h.thread = t.key`

	// Queries for SQLite, which has to bring message_text up to date before a search.
	TextBehind = `SELECT CASE WHEN s.done < COALESCE((SELECT max(key) FROM message), 0) OR EXISTS (SELECT 1 FROM message_text_stale) THEN 1 ELSE 0 END
		FROM message_text_state s`
	TextDone    = `SELECT done FROM message_text_state`
	TextSetDone = `UPDATE message_text_state SET done = ?`
	TextStale   = `SELECT key FROM message_text_stale ORDER BY key LIMIT ?`
	TextFresh   = `DELETE FROM message_text_stale WHERE key = ?`
	TextRemove  = `DELETE FROM message_text WHERE rowid = ?`
	TextAdd     = `INSERT INTO message_text (rowid, content) SELECT key, content FROM message WHERE key = ? AND content IS NOT NULL`
	TextAddNext = `INSERT INTO message_text (rowid, content) SELECT key, content FROM message WHERE key > ? AND key <= ? AND content IS NOT NULL`
	TextNext    = `SELECT COALESCE(max(n.key), 0), count(*) FROM (SELECT key FROM message WHERE key > ? ORDER BY key LIMIT ?) n`

	// Kept is the condition that a row m of message belongs to its thread.
	Kept          = kept
	TextOfMessage = `to_tsvector('simple', regexp_replace(left(m.content, 200000), '[\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+', ' ', 'g'))`
)

// SearchSQLite returns the query for a page of the matches that are best among the newest ones. FTS5 gives its rows from the newest to the oldest, and the
// inner query ends with the last one to rank.
func SearchSQLite(conditions string) string {
	newest := `SELECT message_text.rowid AS key, -bm25(message_text) AS rank FROM message_text JOIN message m ON m.key = message_text.rowid` + SearchJoin +
		` WHERE message_text MATCH ? AND` + kept + conditions + ` ORDER BY message_text.rowid DESC LIMIT ?`
	return bestOf(newest)
}

// SearchPostgres is SearchSQLite for PostgreSQL. It sorts by an expression, because an index in the order of the keys would have it compute the
// words of each message on the way.
func SearchPostgres(conditions string) string {
	newest := `SELECT m.key FROM message m` + SearchJoin + ` WHERE m.content IS NOT NULL AND ` + TextOfMessage + ` @@ to_tsquery('simple', ?) AND` +
		kept + conditions + ` ORDER BY m.key + 0 DESC LIMIT ?`
	return bestOf(`SELECT m.key, CAST(ts_rank(` + TextOfMessage + `, to_tsquery('simple', ?)) AS double precision) AS rank
		FROM (` + newest + `) n JOIN message m ON m.key = n.key`)
}

// bestOf returns the query for a page of what another query ranks. What it sorts has no texts.
func bestOf(ranked string) string {
	return `SELECT ` + SearchColumns + `, f.rank FROM (SELECT r.key, r.rank FROM (` + ranked + `) r ORDER BY r.rank DESC, r.key DESC LIMIT ? OFFSET ?) f
		JOIN message m ON m.key = f.key` + SearchJoin + ` ORDER BY f.rank DESC, m.key DESC`
}
