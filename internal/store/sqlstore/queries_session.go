package sqlstore

import "github.com/skein-dev/skein/internal/store"

// Thread state.
const (
	qStateSum   = `SELECT count(*), COALESCE(sum(size), 0), COALESCE(max(pos), 0) FROM thread_state WHERE thread = ?`
	qStateRow   = `SELECT pos, size FROM thread_state WHERE thread = ? AND key = ?`
	qStateOld   = `SELECT value FROM thread_state WHERE thread = ? AND key = ?`
	qStatePage  = `SELECT key, value FROM thread_state WHERE thread = ? ORDER BY pos LIMIT ? OFFSET ?`
	qStateValue = `SELECT s.value FROM thread_state s JOIN thread t ON t.key = s.thread WHERE t.id = ? AND s.key = ?`
	qPutState   = `INSERT INTO thread_state (thread, key, pos, size, value) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (thread, key) DO UPDATE SET pos = excluded.pos, size = excluded.size, value = excluded.value`
	qDeleteState   = `DELETE FROM thread_state WHERE thread = ? AND key = ?`
	qClearState    = `DELETE FROM thread_state WHERE thread = ?`
	qStateWarnings = `SELECT w.scope, w.reason, w.message, w.created_at FROM thread_state_warning w JOIN thread t ON t.key = w.thread
		WHERE t.id = ? ORDER BY w.scope`
	qWarnState = `INSERT INTO thread_state_warning (thread, scope, reason, message, created_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (thread, scope) DO UPDATE SET reason = excluded.reason, message = excluded.message, created_at = excluded.created_at`
	qUnwarnState   = `DELETE FROM thread_state_warning WHERE thread = ? AND scope = ?`
	qClearWarnings = `DELETE FROM thread_state_warning WHERE thread = ?`
)

// Keys of a thread's key-values, and the key-value service.
const (
	qValueKeys = `SELECT v.key FROM kv v WHERE v.thread = ? AND v.key > ? AND v.key >= ? AND v.key < ? ORDER BY v.key LIMIT ?`

	qGetKV = `SELECT value, expires_at, updated_at FROM kv_service WHERE namespace = ? AND store = ? AND key = ?
		AND (expires_at = 0 OR expires_at > ?)`
	qSetKV = `INSERT INTO kv_service (namespace, store, key, expires_at, updated_at, value) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, store, key) DO UPDATE SET expires_at = excluded.expires_at, updated_at = excluded.updated_at, value = excluded.value`
	qDeleteKV = `DELETE FROM kv_service WHERE namespace = ? AND store = ? AND key = ? RETURNING expires_at`
	qKVKeys   = `SELECT key FROM kv_service WHERE namespace = ? AND store = ? AND key > ? AND key >= ? AND key < ?
		AND (expires_at = 0 OR expires_at > ?) ORDER BY key LIMIT ?`
	qExpired  = `SELECT namespace, store, key FROM kv_service WHERE expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?`
	qExpireKV = `DELETE FROM kv_service WHERE namespace = ? AND store = ? AND key = ? AND expires_at > 0 AND expires_at <= ?`
)

// The lifecycle feed. The casts are for databases that take a parameter of a SELECT as text.
const (
	lifecycleColumns = `l.seq, l.namespace, l.type, l.thread_id, l.thread_name, l.agent, l.run_id, l.reason, l.created_at`

	qLogLifecycle = `INSERT INTO lifecycle (namespace, type, thread_id, thread_name, agent, run_id, reason, created_at)
		SELECT t.namespace, CAST(? AS TEXT), t.id, t.name, CASE WHEN CAST(? AS TEXT) = '' THEN t.agent ELSE CAST(? AS TEXT) END,
			CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT)
		FROM thread t WHERE t.key = ?`
	// With one writer, entries are committed in the order of their numbers.
	qLifecycleInOrder = `SELECT 0, 1, ` + lifecycleColumns + ` FROM lifecycle l WHERE l.seq > ? ORDER BY l.seq LIMIT ?`
	qLifecycleEnd     = `SELECT 0, COALESCE(max(seq), 0) FROM lifecycle`
	// With many writers, entries come in the order of their transactions. The second column says whether the
	// transaction is older than all that are still running.
	qLifecycleByTick = `SELECT l.tick, CASE WHEN l.tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint THEN 1 ELSE 0 END, ` + lifecycleColumns + `
		FROM lifecycle l WHERE (l.tick, l.seq) > (?, ?) ORDER BY l.tick, l.seq LIMIT ?`
	qLifecycleEndByTick = `SELECT l.tick, l.seq FROM (
			SELECT tick, seq FROM lifecycle WHERE tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint ORDER BY tick DESC, seq DESC LIMIT 1) l
		UNION ALL SELECT 0, 0 ORDER BY 1 DESC LIMIT 1`
	qSweepLifecycle = `DELETE FROM lifecycle WHERE seq IN (SELECT o.seq FROM (
		SELECT seq, created_at FROM lifecycle ORDER BY seq LIMIT ?) o WHERE o.created_at < ?)`
)

// Sums of usage.
const (
	usageSums = `COALESCE(sum(u.runs), 0), COALESCE(sum(u.turns), 0), COALESCE(sum(u.input_tokens), 0), COALESCE(sum(u.output_tokens), 0),
		COALESCE(sum(u.cached_tokens), 0), COALESCE(sum(u.reasoning_tokens), 0), COALESCE(sum(u.cost), 0.0), COALESCE(sum(u.duration_ms), 0)`

	qAddUsage = `INSERT INTO usage_sum (namespace, agent, thread_id, parent_id, root_id, purged, runs, turns, input_tokens, output_tokens,
			cached_tokens, reasoning_tokens, cost, duration_ms, threads)
		SELECT t.namespace, CAST(? AS TEXT), t.id, t.parent_id, t.root_id, 0, CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT),
			CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS DOUBLE PRECISION), CAST(? AS BIGINT), CAST(? AS BIGINT)
		FROM thread t WHERE t.key = ?
		ON CONFLICT (namespace, agent, thread_id) DO UPDATE SET runs = usage_sum.runs + excluded.runs, turns = usage_sum.turns + excluded.turns,
			input_tokens = usage_sum.input_tokens + excluded.input_tokens, output_tokens = usage_sum.output_tokens + excluded.output_tokens,
			cached_tokens = usage_sum.cached_tokens + excluded.cached_tokens, reasoning_tokens = usage_sum.reasoning_tokens + excluded.reasoning_tokens,
			cost = usage_sum.cost + excluded.cost, duration_ms = usage_sum.duration_ms + excluded.duration_ms,
			threads = CASE WHEN usage_sum.threads > 0 THEN usage_sum.threads ELSE excluded.threads END`
	qUsageOfThread    = `SELECT ` + usageSums + `, count(DISTINCT CASE WHEN u.threads > 0 THEN u.thread_id END) FROM usage_sum u WHERE u.thread_id = ? AND u.thread_id <> ''`
	qUsageOfNamespace = `SELECT ` + usageSums + `, count(DISTINCT CASE WHEN u.threads > 0 AND u.thread_id <> '' THEN u.thread_id END)
			+ COALESCE(sum(CASE WHEN u.thread_id = '' THEN u.threads ELSE 0 END), 0) FROM usage_sum u WHERE u.namespace = ?`
	qUsageOfAgent = qUsageOfNamespace + ` AND u.agent = ?`
	// Every child has a row from its creation, so the tree can be walked here, across purged threads too.
	qUsageOfTree = `WITH RECURSIVE tree (id) AS (
			SELECT CAST(? AS TEXT) UNION SELECT c.thread_id FROM tree JOIN usage_sum c ON c.parent_id = tree.id AND c.parent_id <> '')
		SELECT ` + usageSums + `, count(DISTINCT CASE WHEN u.threads > 0 THEN u.thread_id END)
		FROM tree JOIN usage_sum u ON u.thread_id = tree.id AND u.thread_id <> ''`

	qMarkUsagePurged = `UPDATE usage_sum SET purged = 1 WHERE thread_id = ? AND thread_id <> ''`
	qRootThere       = `SELECT 1 FROM thread WHERE id = ?`
	qFoldUsage       = `INSERT INTO usage_sum (namespace, agent, thread_id, parent_id, root_id, purged, runs, turns, input_tokens, output_tokens,
			cached_tokens, reasoning_tokens, cost, duration_ms, threads)
		SELECT u.namespace, u.agent, '', '', '', 0, sum(u.runs), sum(u.turns), sum(u.input_tokens), sum(u.output_tokens),
			sum(u.cached_tokens), sum(u.reasoning_tokens), sum(u.cost), sum(u.duration_ms), sum(u.threads)
		FROM usage_sum u WHERE u.root_id = ? AND u.purged = 1 GROUP BY u.namespace, u.agent
		ON CONFLICT (namespace, agent, thread_id) DO UPDATE SET runs = usage_sum.runs + excluded.runs, turns = usage_sum.turns + excluded.turns,
			input_tokens = usage_sum.input_tokens + excluded.input_tokens, output_tokens = usage_sum.output_tokens + excluded.output_tokens,
			cached_tokens = usage_sum.cached_tokens + excluded.cached_tokens, reasoning_tokens = usage_sum.reasoning_tokens + excluded.reasoning_tokens,
			cost = usage_sum.cost + excluded.cost, duration_ms = usage_sum.duration_ms + excluded.duration_ms, threads = usage_sum.threads + excluded.threads`
	qDropFolded = `DELETE FROM usage_sum WHERE root_id = ? AND purged = 1`
	qEndRuns    = `UPDATE run SET status = 'terminated', ended_at = ? WHERE thread = ? AND status IN ('running', 'waiting')`
	qRoot       = `SELECT root_id FROM thread WHERE key = ?`
	qOpenRuns   = `SELECT id, agent, status, steps, started_at, usage FROM run WHERE thread = ? AND status IN ('running', 'waiting')`
)

// Imports, and the log without its messages.
const (
	qImport      = `SELECT i.manifest, i.last_seq FROM thread_import i JOIN thread t ON t.key = i.thread WHERE t.id = ?`
	qHasImport   = `SELECT 1 FROM thread_import WHERE thread = ?`
	qHasOpenRun  = `SELECT 1 FROM run WHERE thread = ? AND status IN ('running', 'waiting') LIMIT 1`
	qHasRunSince = `SELECT 1 FROM log WHERE thread = ? AND seq > COALESCE((SELECT max(d.seq) FROM log d WHERE d.thread = ? AND d.type = '` + store.EventDestroyed + `'), 0)
		AND type IN ('` + store.EventRunStarted + `', '` + store.EventRunEnded + `') LIMIT 1`
	// This selects items that start a run of the conversation. Messages are counted elsewhere.
	qHasWork      = `SELECT 1 FROM inbox WHERE thread = ? AND kind IN ('` + string(store.InboxTool) + `', '` + string(store.InboxChildResult) + `', '` + string(store.InboxApproval) + `') LIMIT 1`
	qInsertImport = `INSERT INTO thread_import (thread, manifest, last_seq) VALUES (?, ?, ?)`
	qClearImport  = `DELETE FROM thread_import WHERE thread = ?`
	qNameImported = `UPDATE thread SET title = CASE WHEN title = '' THEN CAST(? AS TEXT) ELSE title END,
		task_id = CASE WHEN task_id = '' THEN CAST(? AS TEXT) ELSE task_id END WHERE key = ?`
	qLogEntries = `SELECT seq, type, run_id, message_id, data, created_at FROM log WHERE thread = ? AND seq > ? AND type IN (`
)
