package queries

// Queries about idempotency keys.
const (
	Recorded     = `SELECT i.fingerprint, i.result FROM idempotency i JOIN thread t ON t.key = i.thread WHERE t.id = ? AND i.key = ?`
	RecordedByID = `SELECT fingerprint, result FROM idempotency WHERE thread = ? AND key = ?`
	Record       = `INSERT INTO idempotency (thread, key, fingerprint, result, created_at) VALUES (?, ?, ?, ?, ?)`
	SweepKeys    = `DELETE FROM idempotency WHERE (thread, key) IN
		(SELECT thread, key FROM idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?)`
)
