package queries

// Messages.
const (
	RunMessages = `SELECT ` + MessageColumns + ` FROM message m JOIN thread t ON t.key = m.thread WHERE t.id = ? AND m.run_id = ? AND` + kept + ` ORDER BY m.seq`

	MessageColumns = `m.seq, m.id, m.role, m.silent, m.depth, m.status, m.created_at, m.run_id, m.tool_call_id, m.content, m.rest`

	Message       = `SELECT ` + MessageColumns + ` FROM message m JOIN thread t ON t.key = m.thread WHERE t.id = ? AND m.id = ? AND` + kept
	MessageByKey  = `SELECT ` + MessageColumns + ` FROM message m WHERE m.thread = ? AND m.id = ? AND` + kept
	MessageSeq    = `SELECT seq FROM message m WHERE m.thread = ? AND m.id = ? AND` + kept
	InsertMessage = `INSERT INTO message (thread, seq, id, role, silent, depth, status, created_at, run_id, tool_call_id, content, rest, summary_to)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	UpdateMessage = `UPDATE message SET silent = ?, status = ?, content = ?, rest = ? WHERE thread = ? AND seq = ?`
	DeleteMessage = `DELETE FROM message WHERE thread = ? AND seq = ?`
	// Summaries selects the summaries among a range of a source's messages that may stand for a message.
	Summaries   = `SELECT ` + MessageColumns + ` FROM message m WHERE m.thread = ? AND m.summary_to >= ? AND m.seq > ? AND m.seq <= ? ORDER BY m.seq`
	ToolResults = `SELECT ` + MessageColumns + ` FROM message m WHERE m.thread = ? AND m.tool_call_id = ? AND m.tool_call_id IS NOT NULL
		AND m.role = 'tool' AND m.seq + 0 > ?` // the sum keeps the planner from the index by seq, along which it would read all later messages
)
