package queries

// Vectors of messages, and what post-run tasks used.
const (
	Embedded     = `SELECT m.seq, m.content, m.silent, m.created_at, t.namespace, t.user_id FROM message m JOIN thread t ON t.key = m.thread WHERE m.thread = ? AND m.id = ? AND` + kept
	PutEmbedding = `INSERT INTO embedding (thread, seq, namespace, agent, user_id, space, created_at, vector) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (thread, seq) DO UPDATE SET agent = excluded.agent, space = excluded.space, vector = excluded.vector`
	Forget      = `DELETE FROM embedding WHERE thread = ? AND seq = ?`
	ForgetAfter = `DELETE FROM embedding WHERE thread = ? AND seq > ?`
	PurgeMemory = `DELETE FROM embedding WHERE thread = ? AND seq IN (SELECT seq FROM embedding WHERE thread = ? ORDER BY seq LIMIT ?)`
	Vectors     = `SELECT e.thread, e.seq, e.vector FROM embedding e JOIN thread t ON t.key = e.thread AND t.retained_at = 0
		WHERE e.namespace = ? AND e.agent = ? AND e.user_id = ? AND e.space = ? AND e.created_at >= ? AND e.created_at < ?
		AND NOT EXISTS (SELECT 1 FROM message_cut c WHERE c.thread = e.thread AND c.lo < e.seq AND c.hi >= e.seq)
		ORDER BY e.created_at DESC LIMIT ?`
	Remembered = `SELECT t.id, t.name, t.title, ` + MessageColumns + ` FROM message m JOIN thread t ON t.key = m.thread WHERE m.thread = ? AND m.seq = ?`

	AddTaskUsage = `INSERT INTO task_usage (thread, run, task, agent, usage, created_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (thread, run, task) DO NOTHING`
	UsageRecords = `SELECT r.id AS run, '' AS task, r.agent, r.status, r.steps, r.started_at, r.ended_at, r.usage
			FROM run r JOIN thread t ON t.key = r.thread WHERE t.id = ? AND r.status NOT IN ('running', 'waiting')
		UNION ALL SELECT u.run, u.task, u.agent, '' AS status, 0 AS steps, u.created_at, u.created_at, u.usage
			FROM task_usage u JOIN thread t ON t.key = u.thread WHERE t.id = ?
		ORDER BY 7 DESC, 1 DESC, 2 LIMIT ? OFFSET ?`
)
