package queries

// Quotas of namespaces.
const (
	LockQuota = `INSERT INTO quota_namespace (namespace) VALUES (?) ON CONFLICT (namespace) DO UPDATE SET namespace = excluded.namespace`

	CountThreads = `SELECT count(*) FROM thread_head WHERE namespace = ?`
	SumBytes     = `SELECT COALESCE(CAST(sum(bytes) AS BIGINT), 0) FROM file_usage WHERE namespace = ?`
	// SumMessages is not less than 0 while messages from before the migration are not counted yet.
	SumMessages  = `SELECT CASE WHEN sum(bytes) > 0 THEN CAST(sum(bytes) AS BIGINT) ELSE 0 END FROM message_usage WHERE namespace = ?`
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
	DropClaim     = `DELETE FROM quota_claim WHERE namespace = ? AND resource = ? AND name = ?`
	ExpiredClaims = `SELECT DISTINCT namespace FROM quota_claim WHERE expires_at <= ?`
	SweepClaims   = `DELETE FROM quota_claim WHERE namespace = ? AND expires_at <= ?`
)

// PartSeqs is how many sequence numbers of a thread a row of message_usage counts. The triggers that write it have the same number.
const PartSeqs = 512

// Bytes of messages. Triggers count those that are written. These queries count the messages from before the triggers.
const (
	MessageFill     = `SELECT thread, seq, through FROM message_usage_fill WHERE id = 1`
	SetMessageFill  = `UPDATE message_usage_fill SET thread = ?, seq = ? WHERE id = 1`
	EndMessageFill  = `DELETE FROM message_usage_fill WHERE id = 1`
	DropMessageUses = `DELETE FROM message_usage WHERE thread = ?`
	// DropLostUses removes what a release that knows nothing of it has left of a thread that is gone.
	DropLostUses = `DELETE FROM message_usage WHERE thread = ? AND NOT EXISTS (SELECT 1 FROM thread t WHERE t.key = message_usage.thread)`
	// StagedUses finds the placeholders of restores for which messages count. ShowUses moves the bytes of a finished restore to the namespace of
	// its threads, at most as many rows as the last argument says. Earlier releases finish a restore without doing that.
	StagedUses = `SELECT DISTINCT namespace FROM message_usage WHERE namespace >= '` + StagingPrefix + `' AND namespace < 'restore0'` // 0 follows the slash
	ShowUses   = `UPDATE message_usage SET namespace = ? WHERE (thread, part) IN (SELECT u.thread, u.part FROM message_usage u
		WHERE u.namespace = ? AND NOT EXISTS (SELECT 1 FROM thread t WHERE t.key = u.thread AND t.namespace = u.namespace) LIMIT ?)`
	// PartToCount finds the next part by a message that is there, or by what the triggers have counted of messages that are gone.
	PartToCount = `SELECT c.thread, c.seq FROM (SELECT m.thread, m.seq FROM message m WHERE (m.thread, m.seq) > (?, ?) AND m.thread <= ? ORDER BY m.thread, m.seq LIMIT 1) c
		UNION ALL SELECT c.thread, c.part * 512 FROM (SELECT u.thread, u.part FROM message_usage u WHERE (u.thread, u.part) > (?, ?) AND u.part >= 0 AND u.thread <= ?
			ORDER BY u.thread, u.part LIMIT 1) c
		ORDER BY 1, 2 LIMIT 1`
	// CountMessages counts a part's messages from before the triggers: the messages that are there, less those that the triggers have
	// counted. One statement reads both, so that it does not matter what others write meanwhile. What forks read of a thread that is gone
	// counts to the namespace of the forks.
	CountMessages = `INSERT INTO message_usage (thread, part, namespace, bytes)
		SELECT t.key, -1 - CAST(? AS BIGINT), COALESCE(NULLIF(t.namespace, ''), (SELECT r.namespace FROM message_segment s JOIN thread r ON r.key = s.thread
			WHERE s.source = t.key AND r.namespace <> '' LIMIT 1), ''),
			CAST(COALESCE((SELECT sum(COALESCE(octet_length(m.content), 0) + COALESCE(octet_length(m.rest), 0)) FROM message m
				WHERE m.thread = t.key AND m.seq >= ? AND m.seq < ?), 0) AS BIGINT)
			- COALESCE((SELECT u.bytes FROM message_usage u WHERE u.thread = t.key AND u.part = ?), 0)
		FROM thread t WHERE t.key = ? ON CONFLICT (thread, part) DO NOTHING`
)
