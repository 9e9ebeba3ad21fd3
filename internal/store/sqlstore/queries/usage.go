package queries

// Sums of usage.
const (
	UsageSums = `COALESCE(sum(u.runs), 0), COALESCE(sum(u.turns), 0), COALESCE(sum(u.input_tokens), 0), COALESCE(sum(u.output_tokens), 0),
		COALESCE(sum(u.cached_tokens), 0), COALESCE(sum(u.reasoning_tokens), 0), COALESCE(sum(u.cost), 0.0), COALESCE(sum(u.duration_ms), 0)`

	AddUsage = `INSERT INTO usage_sum (namespace, agent, thread_id, parent_id, root_id, purged, runs, turns, input_tokens, output_tokens,
			cached_tokens, reasoning_tokens, cost, duration_ms, threads, namespace_uid)
		SELECT t.namespace, CAST(? AS TEXT), t.id, t.parent_id, t.root_id, 0, CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT),
			CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS DOUBLE PRECISION), CAST(? AS BIGINT), CAST(? AS BIGINT), t.namespace_uid
		FROM thread t WHERE t.key = ?
		ON CONFLICT (namespace, agent, thread_id) DO UPDATE SET runs = usage_sum.runs + excluded.runs, turns = usage_sum.turns + excluded.turns,
			input_tokens = usage_sum.input_tokens + excluded.input_tokens, output_tokens = usage_sum.output_tokens + excluded.output_tokens,
			cached_tokens = usage_sum.cached_tokens + excluded.cached_tokens, reasoning_tokens = usage_sum.reasoning_tokens + excluded.reasoning_tokens,
			cost = usage_sum.cost + excluded.cost, duration_ms = usage_sum.duration_ms + excluded.duration_ms,
			threads = CASE WHEN usage_sum.threads > 0 THEN usage_sum.threads ELSE excluded.threads END,
			namespace_uid = CASE WHEN usage_sum.namespace_uid = '' THEN excluded.namespace_uid ELSE usage_sum.namespace_uid END`
	// AddToUsage is AddUsage for a row that exists, without another look at its thread. It leaves alone a row whose owner is unknown where the
	// thread's is known.
	AddToUsage = `UPDATE usage_sum SET runs = runs + ?, turns = turns + ?, input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
			cached_tokens = cached_tokens + ?, reasoning_tokens = reasoning_tokens + ?, cost = cost + ?, duration_ms = duration_ms + ?,
			threads = CASE WHEN threads > 0 THEN threads ELSE ? END
		WHERE namespace = ? AND agent = ? AND thread_id = ?
			AND (namespace_uid <> '' OR NOT EXISTS (SELECT 1 FROM thread t WHERE t.key = ? AND t.namespace_uid <> ''))`
	UsageOfThread    = `SELECT ` + UsageSums + `, count(DISTINCT CASE WHEN u.threads > 0 THEN u.thread_id END) FROM usage_sum u WHERE u.thread_id = ? AND u.thread_id <> ''`
	UsageOfNamespace = `SELECT ` + UsageSums + `, count(DISTINCT CASE WHEN u.threads > 0 AND u.thread_id <> '' THEN u.thread_id END)
			+ COALESCE(sum(CASE WHEN u.thread_id = '' THEN u.threads ELSE 0 END), 0) FROM usage_sum u WHERE u.namespace = ?` + OfNamespace
	UsageOfAgent = UsageOfNamespace + ` AND u.agent = ?`
	// Every child has a row from its creation, so the tree can be walked here, across purged threads too.
	UsageOfTree = `WITH RECURSIVE tree (id) AS (
			SELECT CAST(? AS TEXT) UNION SELECT c.thread_id FROM tree JOIN usage_sum c ON c.parent_id = tree.id AND c.parent_id <> '')
		SELECT ` + UsageSums + `, count(DISTINCT CASE WHEN u.threads > 0 THEN u.thread_id END)
		FROM tree JOIN usage_sum u ON u.thread_id = tree.id AND u.thread_id <> ''`

	MarkUsagePurged = `UPDATE usage_sum SET purged = 1 WHERE thread_id = ? AND thread_id <> ''`
	RootThere       = `SELECT 1 FROM thread WHERE id = ?`
	// OwnUsage gives the rows of a tree one owner, also those of threads whose namespace was not known yet.
	OwnUsage = `UPDATE usage_sum SET namespace_uid = (SELECT max(r.namespace_uid) FROM usage_sum r WHERE r.root_id = ? AND r.purged = 1)
		WHERE root_id = ? AND purged = 1 AND namespace_uid = ''`
	// FoldUsage leaves rows alone where the row of the agent has another owner: they are told apart by their UIDs, and one sum cannot be.
	FoldUsage = `INSERT INTO usage_sum (namespace, namespace_uid, agent, thread_id, parent_id, root_id, purged, runs, turns, input_tokens, output_tokens,
			cached_tokens, reasoning_tokens, cost, duration_ms, threads)
		SELECT u.namespace, max(u.namespace_uid), u.agent, '', '', '', 0, sum(u.runs), sum(u.turns), sum(u.input_tokens), sum(u.output_tokens),
			sum(u.cached_tokens), sum(u.reasoning_tokens), sum(u.cost), sum(u.duration_ms), sum(u.threads)
		FROM usage_sum u WHERE ` + folds + ` GROUP BY u.namespace, u.agent
		ON CONFLICT (namespace, agent, thread_id) DO UPDATE SET runs = usage_sum.runs + excluded.runs, turns = usage_sum.turns + excluded.turns,
			input_tokens = usage_sum.input_tokens + excluded.input_tokens, output_tokens = usage_sum.output_tokens + excluded.output_tokens,
			cached_tokens = usage_sum.cached_tokens + excluded.cached_tokens, reasoning_tokens = usage_sum.reasoning_tokens + excluded.reasoning_tokens,
			cost = usage_sum.cost + excluded.cost, duration_ms = usage_sum.duration_ms + excluded.duration_ms, threads = usage_sum.threads + excluded.threads
		WHERE usage_sum.namespace_uid = excluded.namespace_uid`
	DropFolded = `DELETE FROM usage_sum AS u WHERE ` + folds
	folds      = `u.root_id = ? AND u.purged = 1 AND NOT EXISTS (SELECT 1 FROM usage_sum f
		WHERE f.namespace = u.namespace AND f.agent = u.agent AND f.thread_id = '' AND f.namespace_uid <> u.namespace_uid)`
	EndRuns  = `UPDATE run SET status = 'terminated', ended_at = ? WHERE thread = ? AND status IN ('running', 'waiting')`
	Root     = `SELECT root_id FROM thread WHERE key = ?`
	OpenRuns = `SELECT id, agent, status, steps, started_at, usage FROM run WHERE thread = ? AND status IN ('running', 'waiting')`
)
