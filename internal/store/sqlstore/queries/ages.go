package queries

// Queries that remove what is old enough. The conditions are spelled as in the indexes; otherwise the indexes are not
// used.
const (
	// SweepDeltas removes pieces of answers whose message is stored, or whose run has ended.
	SweepDeltas = `DELETE FROM log WHERE (thread, seq) IN (SELECT l.thread, l.seq FROM log l WHERE l.type = 'message.delta' AND l.created_at < ?
		AND (EXISTS (SELECT 1 FROM message m WHERE m.id = l.message_id AND m.thread = l.thread)
			OR NOT EXISTS (SELECT 1 FROM run r WHERE r.thread = l.thread AND r.id = l.run_id AND r.status IN ('running', 'waiting')))
		ORDER BY l.created_at LIMIT ?)`
	// SweepInboxKeys spares the keys of items that still wait.
	SweepInboxKeys = `DELETE FROM inbox_key WHERE (thread, key) IN (SELECT k.thread, k.key FROM inbox_key k WHERE k.used_at < ?
		AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.thread = k.thread AND i.seq = k.seq) ORDER BY k.used_at LIMIT ?)`
	SweepDeleted = `DELETE FROM deleted_object WHERE uid IN (SELECT d.uid FROM deleted_object d WHERE d.deleted_at < ? ORDER BY d.deleted_at LIMIT ?)`
)
