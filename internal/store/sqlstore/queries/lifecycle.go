package queries

// The lifecycle feed. The casts are for databases that take a parameter of a SELECT as text.
const (
	LifecycleColumns = `l.seq, l.namespace, l.namespace_uid, l.type, l.thread_id, l.thread_name, l.agent, l.run_id, l.reason, l.created_at`

	LogLifecycle = `INSERT INTO lifecycle (namespace, namespace_uid, type, thread_id, thread_name, agent, run_id, reason, created_at)
		SELECT t.namespace, t.namespace_uid, CAST(? AS TEXT), t.id, t.name, CASE WHEN CAST(? AS TEXT) = '' THEN t.agent ELSE CAST(? AS TEXT) END,
			CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT)
		FROM thread t WHERE t.key = ?`
	// LogLifecycleOf is LogLifecycle for a thread that exists, with its namespace and its id. SQLite executes it for less.
	LogLifecycleOf = `INSERT INTO lifecycle (namespace, namespace_uid, type, thread_id, thread_name, agent, run_id, reason, created_at)
		VALUES (?, (SELECT namespace_uid FROM thread WHERE key = ?), ?, ?, (SELECT name FROM thread WHERE key = ?),
			CASE WHEN ? = '' THEN (SELECT agent FROM thread WHERE key = ?) ELSE ? END, ?, ?, ?)`
	// With one writer, entries are committed in the order of their numbers.
	LifecycleInOrder = `SELECT 0, 1, ` + LifecycleColumns + ` FROM lifecycle l WHERE l.seq > ? ORDER BY l.seq LIMIT ?`
	LifecycleEnd     = `SELECT 0, COALESCE(max(seq), 0) FROM lifecycle`
	// With many writers, entries come in the order of their transactions. The second column says whether the
	// transaction is older than all that are still running.
	LifecycleByTick = `SELECT l.tick, CASE WHEN l.tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint THEN 1 ELSE 0 END, ` + LifecycleColumns + `
		FROM lifecycle l WHERE (l.tick, l.seq) > (?, ?) ORDER BY l.tick, l.seq LIMIT ?`
	LifecycleEndByTick = `SELECT l.tick, l.seq FROM (
			SELECT tick, seq FROM lifecycle WHERE tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint ORDER BY tick DESC, seq DESC LIMIT 1) l
		UNION ALL SELECT 0, 0 ORDER BY 1 DESC LIMIT 1`
	// AdoptLifecycle gives entries of another server, whose transactions had larger numbers, the number of its own transaction. Readers stop
	// before transactions that are in progress, so none has passed that number, and entries of another replica may be among them.
	AdoptLifecycle = `UPDATE lifecycle SET tick = pg_current_xact_id()::text::bigint WHERE tick > pg_current_xact_id()::text::bigint`
	// LifecycleMoved takes the number of an entry and the tick of a cursor. It returns the tick that AdoptLifecycle has given to the entry, and no
	// row for a cursor of this server.
	LifecycleMoved = `SELECT COALESCE((SELECT max(l.tick) FROM lifecycle l WHERE l.seq <= ?), 0)
		WHERE CAST(? AS BIGINT) >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
	SweepLifecycle = `DELETE FROM lifecycle WHERE seq IN (SELECT o.seq FROM (
		SELECT seq, created_at FROM lifecycle ORDER BY seq LIMIT ?) o WHERE o.created_at < ?)`
)
