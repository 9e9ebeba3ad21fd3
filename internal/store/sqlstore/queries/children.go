package queries

import "strings"

// Queries about the tasks of children and their number.
const (
	LockChildren = `INSERT INTO child_namespace (namespace) VALUES (?) ON CONFLICT (namespace) DO UPDATE SET namespace = excluded.namespace`

	ChildTaskColumns = `id, parent_id, reference, namespace, kind, agent, task, salt`
	ChildTask        = `SELECT ` + ChildTaskColumns + ` FROM child_task WHERE id = ?`
	PutChildTask     = `INSERT INTO child_task (` + ChildTaskColumns + `, living, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?)`

	UnmadeChildren = `SELECT c.reference FROM child_task c WHERE c.parent_id = ? AND c.living = 1 AND c.created_at < ?
		AND NOT EXISTS (SELECT 1 FROM thread t WHERE t.parent_id = c.parent_id AND t.parent_id <> '' AND t.reference = c.reference)`

	// CountChild counts a new thread as a child, whether or not it was reserved.
	CountChild = `INSERT INTO child_task (` + ChildTaskColumns + `, living, created_at) VALUES (?, ?, ?, ?, ?, ?, NULL, '', ?, ?)
		ON CONFLICT (parent_id, reference) DO UPDATE SET living = excluded.living`
	ReleaseChild = `UPDATE child_task SET living = 0 WHERE parent_id = ? AND reference = ? AND living = 1`
	// ChildEnded releases the place of a thread, unless a present one has its reference, and so its place.
	ChildEnded = `UPDATE child_task SET living = 0 WHERE living = 1 AND ` + placeOf + unlessTaken + `)`
	// ForgetOwnTask removes what a purged child was given. The row stays, so that the call which made the child does not make it again.
	ForgetOwnTask  = `UPDATE child_task SET task = NULL, salt = '' WHERE id NOT LIKE 'thread:%' AND ` + placeOf + `)`
	DeleteOwnCount = `DELETE FROM child_task WHERE id LIKE 'thread:%' AND ` + placeOf + unlessTaken + `)`
	placeOf        = `(parent_id, reference) IN (SELECT t.parent_id, t.reference FROM thread t WHERE t.key = ? AND t.parent_id <> ''`
	// unlessTaken: a retained thread has left its place to the next one of its reference. One that a restore brought is retained until it is
	// adopted, and keeps its place.
	unlessTaken = ` AND NOT EXISTS (SELECT 1 FROM thread o WHERE o.parent_id = t.parent_id AND o.parent_id <> '' AND o.reference = t.reference
		AND o.key <> t.key AND (o.retained_at = 0 OR o.restored <> '' AND o.restored NOT LIKE '` + RestoredKept + `%'))`
	DeleteChildTasks = `DELETE FROM child_task WHERE parent_id = ?`

	// Child is the present one of a reference, which retained ones may have had.
	Child = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.parent_id = ? AND t.parent_id <> '' AND t.reference = ?
		ORDER BY CASE t.retained_at WHEN 0 THEN 0 ELSE 1 END, t.key DESC LIMIT 1`

	// unfinished is spelled as in the index thread_unfinished; otherwise the index is not used.
	unfinished         = ` t.parent_id <> '' AND t.terminated_at = 0 AND t.retained_at = 0`
	oldestFirst        = ` ORDER BY t.created_at, t.key`
	UnfinishedChildren = `SELECT t.id FROM thread t WHERE t.parent_id = ? AND` + unfinished + oldestFirst
	UnfinishedBelow    = `WITH RECURSIVE ended (id) AS (SELECT id FROM thread WHERE id = ?
		UNION ALL SELECT t.id FROM ended JOIN thread t ON t.parent_id = ended.id AND t.parent_id <> '' AND t.terminated_at <> 0)
		SELECT t.id FROM ended CROSS JOIN thread t WHERE t.parent_id = ended.id AND` + unfinished  // CROSS: SQLite begins with ended
	// WorkingChildren leaves out those that are being deleted: 8 is txn.AsleepDeleting.
	WorkingChildren = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.parent_id = ? AND` + unfinished + ` AND (h.asleep & 8) = 0 AND (h.waiting > 0 OR
		COALESCE((SELECT r.status FROM run r WHERE r.thread = t.key ORDER BY r.seq DESC LIMIT 1), 'running') IN ('running', 'waiting'))` + oldestFirst
	ChildrenSince = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.parent_id = ? AND t.parent_id <> '' AND t.created_at >= ?` + oldestFirst
)

// ChildrenAtOnce is how many children one query asks for. The number is constant, so that the query is prepared once.
const ChildrenAtOnce = 50

// ChildStates reads what ChildrenAtOnce children of a thread do.
var ChildStates = `SELECT t.reference, t.id, t.registry_status FROM thread t WHERE t.parent_id = ? AND t.parent_id <> ''
	AND t.reference IN (` + strings.TrimSuffix(strings.Repeat("?, ", ChildrenAtOnce), ", ") + `) AND t.retained_at = 0`
