package queries

// Firings of effects.
const (
	newFiring = `effect_id, due, thread_id, namespace, name, effect, args, status, attempts, error, fired_at, ended_at, hook_depth,
		epoch, origin, target, waiting, started_at, cost, available_at, log`
	FiringColumns = newFiring + `, keyed_by`
	// briefly leaves out what is large: arguments, target and log.
	briefly = `effect_id, due, thread_id, namespace, name, effect, NULL, status, attempts, error, fired_at, ended_at, hook_depth,
		epoch, origin, NULL, waiting, started_at, cost, available_at, '', keyed_by`

	Firing       = `SELECT ` + FiringColumns + ` FROM effect_firing WHERE effect_id = ? AND due = ? AND thread_id = ?`
	RecordFiring = `INSERT INTO effect_firing (` + newFiring + `, owner)
		SELECT CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT),
			0, '', CAST(? AS BIGINT), 0, CAST(? AS BIGINT), 0, CAST(? AS TEXT), CAST(? AS TEXT), '', 0, 0, CAST(? AS BIGINT), '', ''
		WHERE NOT EXISTS (SELECT 1 FROM effect_schedule WHERE effect_id = ? AND removed = 1)
			AND NOT EXISTS (SELECT 1 FROM thread t WHERE t.id = ? AND t.namespace <> ?)
		ON CONFLICT (effect_id, due, thread_id) DO NOTHING`
	// OldestDue takes the time, and how many it reads.
	OldestDue  = `SELECT namespace, available_at FROM effect_firing WHERE status = 'pending' AND available_at <= ? ORDER BY available_at LIMIT ?`
	NextFiring = `SELECT available_at FROM effect_firing WHERE status = 'pending' AND available_at > ? ORDER BY available_at LIMIT 1`
	// firingNamespaces lists the namespaces that have pending firings by jumping through the index from one to the next. A query that begins with it
	// does something for each of them, so that many namespaces take no more statements than one.
	firingNamespaces = `WITH RECURSIVE n (namespace) AS (
			SELECT min(namespace) FROM effect_firing WHERE status = 'pending'
			UNION ALL
			SELECT (SELECT min(namespace) FROM effect_firing WHERE status = 'pending' AND namespace > n.namespace)
			FROM n WHERE n.namespace IS NOT NULL)
		SELECT n.namespace, `
	// DueFirings takes the first namespace, how many namespaces it looks at, the time, and how many firings of a namespace it counts at most.
	DueFirings = `WITH RECURSIVE n (namespace, nth) AS (
			SELECT min(namespace), 1 FROM effect_firing WHERE status = 'pending' AND namespace >= ?
			UNION ALL
			SELECT (SELECT min(namespace) FROM effect_firing WHERE status = 'pending' AND namespace > n.namespace), n.nth + 1
			FROM n WHERE n.namespace IS NOT NULL AND n.nth < ?)
		SELECT n.namespace, (SELECT count(*) FROM (SELECT 1 FROM effect_firing f WHERE f.status = 'pending' AND f.namespace = n.namespace AND f.available_at <= ? LIMIT ?) c),
			(SELECT min(f.available_at) FROM effect_firing f WHERE f.status = 'pending' AND f.namespace = n.namespace)
		FROM n WHERE n.namespace IS NOT NULL ORDER BY n.nth`
	PendingFirings = firingNamespaces + `(SELECT count(*) FROM effect_firing f WHERE f.status = 'pending' AND f.namespace = n.namespace)
		FROM n WHERE n.namespace IS NOT NULL`
	// Claimable has the oldest firings first. Those that were recorded together belong to one effect, so the one that was due first comes first. The
	// indexes have this order, too.
	Claimable = `SELECT ` + FiringColumns + ` FROM effect_firing WHERE status = 'pending' AND namespace = ? AND available_at <= ?
		ORDER BY available_at, effect_id, due, thread_id LIMIT ?`
	// ClaimableKeys are the keys of what Claimable reads. They are in the index, and are not locked.
	ClaimableKeys = `SELECT effect_id, due, thread_id FROM effect_firing WHERE status = 'pending' AND namespace = ? AND available_at <= ? ORDER BY available_at LIMIT ?`
	ClaimFiring   = `UPDATE effect_firing SET owner = ?, available_at = ?, attempts = attempts + 1, epoch = epoch + 1,
		started_at = CASE WHEN started_at = 0 THEN CAST(? AS BIGINT) ELSE started_at END WHERE effect_id = ? AND due = ? AND thread_id = ?`
	ExtendFiring = `UPDATE effect_firing SET available_at = ? WHERE effect_id = ? AND due = ? AND thread_id = ? AND owner = ?`
	// ExtendUnlocked is ExtendFiring for databases with many writers. It skips a firing that another writer has locked, perhaps to claim it.
	ExtendUnlocked = `UPDATE effect_firing SET available_at = ? WHERE (effect_id, due, thread_id) IN (SELECT f.effect_id, f.due, f.thread_id
		FROM effect_firing f WHERE f.effect_id = ? AND f.due = ? AND f.thread_id = ? AND f.owner = ? FOR UPDATE SKIP LOCKED)`
	RenewFiring = `UPDATE effect_firing SET available_at = ? WHERE effect_id = ? AND due = ? AND thread_id = ? AND epoch = ?
		AND status = 'pending' AND owner <> ''`
	FinishFiring = `UPDATE effect_firing SET status = ?, error = ?, ended_at = ?, owner = '', available_at = ?, waiting = ?, cost = cost + ?, log = ?,
			attempts = attempts - CAST(? AS BIGINT), started_at = CASE WHEN attempts = CAST(? AS BIGINT) THEN 0 ELSE started_at END
		WHERE effect_id = ? AND due = ? AND thread_id = ? AND epoch = ? AND status = 'pending' AND owner <> ''`
	WaitFiring   = `UPDATE effect_firing SET waiting = ? WHERE effect_id = ? AND due = ? AND thread_id = ? AND epoch = ? AND status = 'pending' AND owner <> ''`
	CancelFiring = `UPDATE effect_firing SET status = 'canceled', error = ?, ended_at = ?, cost = cost + ?, owner = '', epoch = epoch + 1, waiting = ''
		WHERE effect_id = ? AND due = ? AND thread_id = ? AND status IN ('pending', 'queued', 'running')`
	ReleaseFirings = `UPDATE effect_firing SET owner = '', available_at = ?, attempts = attempts - 1, epoch = epoch + 1,
		started_at = CASE WHEN attempts = 1 THEN 0 ELSE started_at END WHERE status = 'pending' AND owner = ?`
	// ReleaseBegun takes the time, the firing and the owner.
	ReleaseBegun = `UPDATE effect_firing SET owner = '', available_at = ?, attempts = attempts - 1, epoch = epoch + 1
		WHERE effect_id = ? AND due = ? AND thread_id = ? AND status = 'pending' AND owner = ?`
	ClaimedFirings = `SELECT effect_id FROM effect_firing WHERE effect_id = ? AND origin <> 'manual' AND (epoch > 0 OR started_at > 0 OR status IN ('succeeded', 'failed')) LIMIT 1`
	CancelEffect   = `UPDATE effect_firing SET status = 'canceled', error = 'removed before it was due', ended_at = ?
		WHERE effect_id = ? AND epoch = 0 AND started_at = 0 AND status IN ('pending', 'queued', 'running')`
	// ActiveFirings and Firings take the effect, and the due time and thread after which the page begins.
	ActiveFirings      = `SELECT ` + FiringColumns + activeFirings
	BriefActiveFirings = `SELECT ` + briefly + activeFirings
	Firings            = `SELECT ` + FiringColumns + firings
	BriefFirings       = `SELECT ` + briefly + firings
	activeFirings      = ` FROM effect_firing WHERE effect_id = ? AND status IN ('pending', 'queued', 'running')` + firingsAfter
	firings            = ` FROM effect_firing WHERE effect_id = ?` + firingsAfter
	firingsAfter       = ` AND due <= ? AND (due < ? OR thread_id > ?) ORDER BY due DESC, thread_id LIMIT ?`
	// ReleaseQueued takes effect, thread, and both once more.
	ReleaseQueued = `UPDATE effect_firing SET status = CAST(? AS TEXT), available_at = ? WHERE effect_id = ? AND thread_id = ? AND status = 'queued'
		AND due = (SELECT min(o.due) FROM effect_firing o WHERE o.effect_id = ? AND o.thread_id = ? AND o.status = 'queued')
		AND NOT EXISTS (SELECT 1 FROM effect_firing o WHERE o.effect_id = ? AND o.thread_id = ? AND o.status IN ('pending', 'running'))`
	WaitRunning  = `UPDATE effect_firing SET waiting = ? WHERE effect_id = ? AND due = ? AND thread_id = ? AND status = 'running'`
	StartRunning = `UPDATE effect_firing SET started_at = CASE WHEN fired_at > CAST(? AS BIGINT) THEN fired_at ELSE CAST(? AS BIGINT) END, attempts = 1, waiting = ''
		WHERE effect_id = ? AND due = ? AND thread_id = ? AND status = 'running' AND started_at = 0`
	EndRunning = `UPDATE effect_firing SET status = ?, error = ?, ended_at = ?, cost = ?, waiting = '' WHERE effect_id = ? AND due = ? AND thread_id = ? AND status = 'running'`
	// SpentRunning returns what the Threads of running firings, with their subagents, have cost so far: the sums of the runs that have ended, and
	// the usage of those that have not, in one statement, so that no run is in both or in neither. It finds a Thread by its name, as
	// effectplan.ThreadName makes it. It takes the effect, and the first and the last due time. SQLite keeps to the order
	// of a cross join, and uses no index for a value with a plus.
	SpentRunning = `WITH RECURSIVE tree (id) AS (
			SELECT t.id FROM effect_firing f CROSS JOIN thread t
			WHERE f.effect_id = ? AND f.due BETWEEN ? AND ? AND f.thread_id = '' AND f.status = 'running'
				AND t.name = substr(f.name, 1, 200) || '-' || CAST(CASE WHEN f.due % 60000000 = 0 THEN f.due / 60000000 ELSE f.due END AS TEXT)
				AND t.namespace = f.namespace AND +t.retained_at = 0
			UNION SELECT c.thread_id FROM tree CROSS JOIN usage_sum c WHERE c.parent_id = tree.id AND c.parent_id <> '')
		SELECT u.cost, CAST(NULL AS TEXT) FROM tree CROSS JOIN usage_sum u WHERE u.thread_id = tree.id AND u.thread_id <> ''
		UNION ALL SELECT 0.0, r.usage FROM tree CROSS JOIN thread t CROSS JOIN run r
			WHERE t.id = tree.id AND r.thread = t.key AND r.status IN ('running', 'waiting')`
	Outcome = `SELECT ` + FiringColumns + ` FROM effect_firing` + outcome + `1`
	outcome = ` WHERE effect_id = ? AND origin <> 'manual' AND status IN ('succeeded', 'failed', 'canceled') 
		ORDER BY CASE status WHEN 'failed' THEN 0 WHEN 'succeeded' THEN 1 ELSE 2 END, ended_at DESC, due DESC, thread_id LIMIT `
	LastEnded    = `SELECT ` + briefly + ` FROM effect_firing WHERE effect_id = ? AND ended_at > 0 ORDER BY ended_at DESC LIMIT 1`
	FiringCost   = `SELECT COALESCE(sum(cost), 0.0) FROM effect_firing WHERE effect_id = ? AND due >= ? AND due < ?`
	PruneFirings = `DELETE FROM effect_firing WHERE effect_id = ? AND status IN (?, ?) AND due < ? AND (due, thread_id) NOT IN (
		SELECT o.due, o.thread_id FROM effect_firing o WHERE o.effect_id = ? AND o.status IN (?, ?) ORDER BY o.ended_at DESC, o.due DESC, o.thread_id LIMIT ?)
		AND (due, thread_id) NOT IN (SELECT due, thread_id FROM effect_firing` + outcome + `?) RETURNING due, origin`
	PruneSkips = `DELETE FROM effect_skip WHERE effect_id = ? AND (due, thread_id, reason) NOT IN (
		SELECT o.due, o.thread_id, o.reason FROM effect_skip o WHERE o.effect_id = ? ORDER BY o.recorded_at DESC, o.due DESC, o.thread_id, o.reason LIMIT ?)`
	ForgetFirings  = `DELETE FROM effect_firing WHERE effect_id = ?`
	ForgetSkips    = `DELETE FROM effect_skip WHERE effect_id = ?`
	ForgetSchedule = `DELETE FROM effect_schedule WHERE effect_id = ?`
	ForgetFired    = `DELETE FROM effect_fired WHERE effect_id = ?`
	ForgetRequests = `DELETE FROM effect_request WHERE effect_id = ?`
	FiredTimes     = `SELECT times FROM effect_fired WHERE effect_id = ?`
	PutFiredTimes  = `INSERT INTO effect_fired (effect_id, times) VALUES (?, ?) ON CONFLICT (effect_id) DO UPDATE SET times = excluded.times`

	AddRequest      = `INSERT INTO effect_request (effect_id, request, recorded_at, answer) VALUES (?, ?, ?, ?) ON CONFLICT (effect_id, request) DO NOTHING`
	AnsweredRequest = `SELECT COALESCE(answer, '') FROM effect_request WHERE effect_id = ? AND request = ?`
	PruneRequests   = `DELETE FROM effect_request WHERE effect_id = ? AND recorded_at < ?`

	DeleteFirings = `DELETE FROM effect_firing WHERE thread_id = ? AND thread_id <> ''`
	DeleteArgs    = `DELETE FROM effect_args WHERE thread_id = ?`
	FreeFirings   = `UPDATE effect_firing SET owner = '', available_at = 0 WHERE status = 'pending' AND owner <> ''`
)

// How far schedules have come.
const (
	scheduleColumns = `effect_id, namespace, name, fingerprint, cursor, fired, failures, skipped, day, day_fired, removed, times`

	EffectSchedule = `SELECT ` + scheduleColumns + ` FROM effect_schedule WHERE effect_id = ?`
	AddSchedule    = `INSERT INTO effect_schedule (` + scheduleColumns + `, updated_at) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, 0, ?, ?)
		ON CONFLICT (effect_id) DO NOTHING`
	// MoveSchedule takes how many due times were skipped since the caller read the row: firings that could not begin in time add to them, too.
	MoveSchedule = `UPDATE effect_schedule SET fingerprint = ?, cursor = ?, fired = ?, skipped = skipped + CAST(? AS BIGINT), day = ?, day_fired = ?, times = ?, updated_at = ?,
			failures = CASE WHEN CAST(? AS BIGINT) = 1 THEN 0 ELSE failures END
		WHERE effect_id = ? AND fingerprint = ? AND cursor = ? AND removed = 0`
	RemoveSchedule = `INSERT INTO effect_schedule (` + scheduleColumns + `, updated_at) VALUES (?, '', '', '', 0, 0, 0, 0, '', 0, 1, '', ?)
		ON CONFLICT (effect_id) DO UPDATE SET removed = 1, updated_at = excluded.updated_at`
	ScheduleFailed    = `UPDATE effect_schedule SET failures = failures + 1 WHERE effect_id = ?`
	ScheduleSucceeded = `UPDATE effect_schedule SET failures = 0 WHERE effect_id = ? AND failures > 0`
	ScheduleSkipped   = `UPDATE effect_schedule SET skipped = skipped + 1 WHERE effect_id = ?`
	StoredEffects     = `SELECT effect_id FROM effect_schedule WHERE effect_id > ? AND updated_at < ? ORDER BY effect_id LIMIT ?`

	skipColumns = `effect_id, due, until, thread_id, count, reason, detail, recorded_at`
	AddSkip     = `INSERT INTO effect_skip (` + skipColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (effect_id, due, thread_id, reason) DO UPDATE SET until = excluded.until, count = excluded.count, recorded_at = excluded.recorded_at
		WHERE excluded.until > effect_skip.until`
	// SkipBefore returns the newest record of a thread, a reason and a detail that ends before a due time.
	SkipBefore = `SELECT ` + skipColumns + ` FROM effect_skip WHERE effect_id = ? AND thread_id = ? AND reason = ? AND detail = ? AND until < ? ORDER BY until DESC LIMIT 1`
	// FiredBetween looks for a firing of a thread, between two due times, that was not canceled.
	FiredBetween = `SELECT 1 FROM effect_firing WHERE effect_id = ? AND due > ? AND due < ? AND thread_id = ? AND origin <> 'manual' AND status <> 'canceled' LIMIT 1`
	Skips        = `SELECT ` + skipColumns + ` FROM effect_skip WHERE effect_id = ? ORDER BY recorded_at DESC, due DESC, thread_id, reason LIMIT ?`

	EndedEffects = `SELECT DISTINCT effect_id, namespace, name FROM effect_firing
		WHERE effect_id > ? AND origin = '' AND ended_at > 0 AND ended_at < ? ORDER BY effect_id LIMIT ?`

	// UnendedEffects finds effects by the index of what is under way, and reads nothing of a row beyond its names.
	UnendedEffects = `SELECT DISTINCT effect_id, namespace, name FROM effect_firing
		WHERE effect_id > ? AND status IN ('pending', 'queued', 'running') ORDER BY effect_id LIMIT ?`

	PutArgs    = `INSERT INTO effect_args (id, thread_id, args, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	Args       = `SELECT args FROM effect_args WHERE id = ? AND thread_id = ?`
	StoredArgs = `SELECT id FROM effect_args WHERE thread_id = ?`
	EndArgs    = `DELETE FROM effect_args WHERE id = ? AND thread_id = ?`
)
