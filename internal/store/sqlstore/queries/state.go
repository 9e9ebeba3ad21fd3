package queries

// Thread state.
const (
	StateSum   = `SELECT count(*), COALESCE(sum(size), 0), COALESCE(max(pos), 0) FROM thread_state WHERE thread = ?`
	StateRow   = `SELECT pos, size FROM thread_state WHERE thread = ? AND key = ?`
	StateOld   = `SELECT value FROM thread_state WHERE thread = ? AND key = ?`
	StatePage  = `SELECT key, value FROM thread_state WHERE thread = ? ORDER BY pos LIMIT ? OFFSET ?`
	StateValue = `SELECT s.value FROM thread_state s JOIN thread t ON t.key = s.thread WHERE t.id = ? AND s.key = ?`
	PutState   = `INSERT INTO thread_state (thread, key, pos, size, value) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (thread, key) DO UPDATE SET pos = excluded.pos, size = excluded.size, value = excluded.value`
	DeleteState   = `DELETE FROM thread_state WHERE thread = ? AND key = ?`
	ClearState    = `DELETE FROM thread_state WHERE thread = ?`
	StateWarnings = `SELECT w.scope, w.reason, w.message, w.created_at FROM thread_state_warning w JOIN thread t ON t.key = w.thread
		WHERE t.id = ? ORDER BY w.scope`
	WarnState = `INSERT INTO thread_state_warning (thread, scope, reason, message, created_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (thread, scope) DO UPDATE SET reason = excluded.reason, message = excluded.message, created_at = excluded.created_at`
	UnwarnState   = `DELETE FROM thread_state_warning WHERE thread = ? AND scope = ?`
	ClearWarnings = `DELETE FROM thread_state_warning WHERE thread = ?`
)
