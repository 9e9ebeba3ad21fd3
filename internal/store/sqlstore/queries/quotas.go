package queries

// Quotas of namespaces.
const (
	LockQuota = `INSERT INTO quota_namespace (namespace) VALUES (?) ON CONFLICT (namespace) DO UPDATE SET namespace = excluded.namespace`

	CountThreads = `SELECT count(*) FROM thread_head WHERE namespace = ?`
	SumBytes     = `SELECT COALESCE(CAST(sum(bytes) AS BIGINT), 0) FROM file_usage WHERE namespace = ?`
	CountRunning = `SELECT count(*) FROM lease WHERE running_in = ? AND expires_at > ?`
	MarkRunning  = `UPDATE lease SET running_in = ? WHERE thread = ?`
	SumDay       = `SELECT COALESCE(CAST(sum(tokens) AS BIGINT), 0), COALESCE(CAST(sum(cost) AS BIGINT), 0) FROM quota_day WHERE namespace = ? AND day = ?`
	AddDay       = `INSERT INTO quota_day (namespace, day, thread_id, tokens, cost) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (namespace, day, thread_id) DO UPDATE SET tokens = quota_day.tokens + excluded.tokens, cost = quota_day.cost + excluded.cost`
	SweepDays = `DELETE FROM quota_day WHERE day < ?`
	SetWaits  = `UPDATE thread SET waits = ? WHERE key = ? AND waits <> ?`

	ClaimNames = `SELECT name FROM quota_claim WHERE namespace = ? AND resource = ? AND expires_at > ?`
	PutClaim   = `INSERT INTO quota_claim (namespace, resource, name, expires_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (namespace, resource, name) DO UPDATE SET expires_at = excluded.expires_at`
	DropClaim   = `DELETE FROM quota_claim WHERE namespace = ? AND resource = ? AND name = ?`
	SweepClaims = `DELETE FROM quota_claim WHERE expires_at <= ?`
)
