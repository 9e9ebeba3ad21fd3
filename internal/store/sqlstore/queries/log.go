package queries

import (
	"github.com/skein-dev/skein/internal/store"
)

// The log. A message is its own log entry of its creation.
const (
	InsertEvent = `INSERT INTO log (thread, seq, type, run_id, message_id, data, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`
	Events      = `SELECT l.seq AS seq, l.type, l.run_id, l.message_id, l.data, l.created_at,
			'' AS role, 0 AS silent, 0 AS depth, '' AS status, NULL AS tool_call_id, NULL AS content, NULL AS rest
		FROM log l WHERE l.thread = ? AND l.seq > ?
		UNION ALL
		SELECT m.seq, 'message.created', m.run_id, m.id, NULL, m.created_at,
			m.role, m.silent, m.depth, m.status, m.tool_call_id, m.content, m.rest
		FROM message m WHERE m.thread = ? AND m.seq > ?
		ORDER BY seq LIMIT ?`
	// LineTypes equals the condition of the index log_lines, word for word.
	LineTypes   = `type IN ('code.log', 'handler.log', 'hook.failed', 'task.failed')`
	LineColumns = `seq, type, run_id, message_id, data, created_at`
	Lines       = `SELECT ` + LineColumns + ` FROM log WHERE thread = ? AND seq > ? AND ` + LineTypes + ` AND (? = '' OR run_id = ?) ORDER BY seq LIMIT ?`
	NewestLines = `SELECT ` + LineColumns + ` FROM log WHERE thread = ? AND seq > ? AND ` + LineTypes + ` AND (? = '' OR run_id = ?) ORDER BY seq DESC LIMIT ?`
	CountLines  = `SELECT count(*) FROM log WHERE thread = ? AND ` + LineTypes
	OldestLines = `SELECT ` + LineColumns + ` FROM log WHERE thread = ? AND ` + LineTypes + ` ORDER BY seq LIMIT ?`
	RemoveLines = `DELETE FROM log WHERE thread = ? AND seq < ? AND ` + LineTypes
	ReplaceLine = `UPDATE log SET type = ?, run_id = '', message_id = '', data = ? WHERE thread = ? AND seq = ?`
	LastEdit    = `SELECT COALESCE(MAX(l.seq), 0) FROM thread t JOIN log l ON l.thread = t.key AND l.seq > ? WHERE t.id = ?
		AND l.type IN ('` + store.EventMessageUpdated + `', '` + store.EventMessageDeleted + `', '` + store.EventTruncated + `', '` + store.EventDestroyed + `')`
)
