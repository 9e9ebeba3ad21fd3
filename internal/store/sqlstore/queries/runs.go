package queries

// Runs.
const (
	RunColumns = `r.id, r.agent, r.status, r.reason, r.message, r.steps, r.started_at, r.ended_at, r.wake_at, r.state, r.usage, r.session_state`
	FromRuns   = ` FROM run r JOIN thread t ON t.key = r.thread`

	Run       = `SELECT ` + RunColumns + FromRuns + ` WHERE t.id = ? AND r.id = ?`
	Runs      = `SELECT ` + RunColumns + FromRuns + ` WHERE t.id = ? ORDER BY r.seq DESC LIMIT ? OFFSET ?`
	FirstRun  = `SELECT ` + RunColumns + FromRuns + ` WHERE t.id = ? ORDER BY r.seq LIMIT 1`
	UnderWay  = `SELECT 1 FROM run WHERE thread = ? AND status IN ('running', 'waiting') LIMIT 1`
	RunWaits  = `SELECT 1 FROM run WHERE thread = ? AND status = 'waiting' LIMIT 1`
	RunBefore = `SELECT status, started_at, ended_at, usage FROM run WHERE thread = ? AND id = ?`
	InsertRun = `INSERT INTO run (thread, id, seq, agent, status, reason, message, steps, started_at, ended_at, wake_at, state, usage, session_state)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	UpdateRun = `UPDATE run SET agent = ?, status = ?, reason = ?, message = ?, steps = ?, started_at = ?, ended_at = ?,
		wake_at = ?, state = ?, usage = ?, session_state = COALESCE(?, session_state) WHERE thread = ? AND id = ?`
	// The conditions are spelled as in the indexes run_wake and inbox_held; otherwise the indexes are not used. 2 is
	// txn.AsleepRetained, 8 txn.AsleepDeleting.
	Wakes = `SELECT t.id, r.id, r.wake_at FROM run r JOIN thread t ON t.key = r.thread
		WHERE r.wake_at > 0 AND r.status = 'waiting'
		UNION ALL
		SELECT t.id, '', i.held_until FROM inbox i JOIN thread t ON t.key = i.thread JOIN thread_head h ON h.thread = i.thread
		WHERE i.held_until > 0 AND (h.asleep & 10) = 0 AND h.running = 0
		ORDER BY wake_at LIMIT ? OFFSET ?`
)

// The state is spelled out as in the index run_unsettled; otherwise the index is not used.
const (
	PostRunPending = `SELECT t.id, r.id FROM run r JOIN thread t ON t.key = r.thread
		WHERE r.state = '{"postRun":true}' AND r.ended_at < ? ORDER BY r.ended_at LIMIT ?`
	// LeftPostRun takes the present time, and the time before which a run must have ended. It leaves out threads that take no outcome of a
	// task; 2 is txn.AsleepRetained, 8 txn.AsleepDeleting.
	LeftPostRun = `SELECT l.id, l.run, l.namespace FROM (
			SELECT t.id AS id, r.id AS run, t.namespace AS namespace, r.ended_at AS ended_at,
				row_number() OVER (PARTITION BY t.namespace ORDER BY r.ended_at, t.id, r.id) AS turn
			FROM run r JOIN thread t ON t.key = r.thread JOIN thread_head h ON h.thread = r.thread
			WHERE r.state = '{"postRun":true}' AND (h.asleep & 10) = 0 AND (r.tasks_at > 0 AND r.tasks_at <= ? OR r.tasks_at = 0 AND r.ended_at < ?)) l
		ORDER BY l.turn, l.ended_at, l.id, l.run LIMIT ?`
	TakeTasks     = `UPDATE run SET tasks_at = ? WHERE thread = (SELECT key FROM thread WHERE id = ?) AND id = ? AND state = '{"postRun":true}' AND tasks_at <= ?`
	HandOver      = `UPDATE run SET tasks_at = ? WHERE thread = (SELECT key FROM thread WHERE id = ?) AND id = ? AND state = '{"postRun":true}'`
	FinishPostRun = `UPDATE run SET state = NULL WHERE thread = (SELECT key FROM thread WHERE id = ?) AND id = ? AND state = '{"postRun":true}'`
)
