package queries

// Queries that search messages.
const (
	SearchColumns = `t.id, t.namespace, t.name, t.title, ` + MessageColumns
	SearchJoin    = ` JOIN thread t ON t.key = m.thread JOIN thread_head h ON h.thread = t.key`

	// Queries for SQLite, which has to bring message_text up to date before a search.
	TextBehind = `SELECT CASE WHEN s.done < COALESCE((SELECT max(key) FROM message), 0) OR EXISTS (SELECT 1 FROM message_text_stale) THEN 1 ELSE 0 END
		FROM message_text_state s`
	TextDone     = `SELECT done FROM message_text_state`
	TextSetDone  = `UPDATE message_text_state SET done = ?`
	TextStale    = `SELECT key FROM message_text_stale ORDER BY key LIMIT ?`
	TextFresh    = `DELETE FROM message_text_stale WHERE key = ?`
	TextRemove   = `DELETE FROM message_text WHERE rowid = ?`
	TextAdd      = `INSERT INTO message_text (rowid, content) SELECT key, content FROM message WHERE key = ? AND content IS NOT NULL`
	TextAddNext  = `INSERT INTO message_text (rowid, content) SELECT key, content FROM message WHERE key > ? AND key <= ? AND content IS NOT NULL`
	TextNext     = `SELECT COALESCE(max(n.key), 0), count(*) FROM (SELECT key FROM message WHERE key > ? ORDER BY key LIMIT ?) n`
	SearchSQLite = `SELECT ` + SearchColumns + `, -bm25(message_text) AS rank FROM message_text JOIN message m ON m.key = message_text.rowid` + SearchJoin
	MatchSQLite  = `message_text MATCH ? AND` + kept
	// Kept is the condition that a row m of message belongs to its thread.
	Kept          = kept
	TextOfMessage = `to_tsvector('simple', regexp_replace(left(m.content, 200000), '[\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+', ' ', 'g'))`
)
