// Package queries holds the store's queries, in the SQL that all dialects share. Lists of columns match the scan
// functions of the same record.
package queries

// Threads and their heads.
const (
	ThreadColumns = beforeArguments + `t.arguments` + beforeFields + `t.fields` + afterFields
	// PageColumns are ThreadColumns with an empty text for arguments and for fields that have more than
	// 2 KiB. What is stored is never empty. So a page of rows has a bound, and its long texts are read apart.
	PageColumns = beforeArguments + `CASE WHEN octet_length(t.arguments) > 2048 THEN '' ELSE t.arguments END` + beforeFields + pageFields + afterFields
	// ListColumns are PageColumns without arguments.
	ListColumns = beforeArguments + `CAST(NULL AS TEXT)` + beforeFields + pageFields + afterFields
	FromThreads = ` FROM thread_head h JOIN thread t ON t.key = h.thread`

	beforeArguments = `t.id, t.namespace, t.name, t.agent, t.origin_agent, t.declared_agent, t.user_id, t.task_id, t.title, `
	beforeFields    = `, t.created_at,
		t.parent_id, t.reference, t.root_id, t.depth, t.origin_id, t.fork_index, t.child, t.terminated_at, t.terminated_reason, t.registry_status,
		t.scoped_env, t.env_root, t.waits, h.version, h.counts, h.queued, h.last_activity_at, h.last_seq,
		t.archived_at, `
	pageFields  = `CASE WHEN octet_length(t.fields) > 2048 THEN '' ELSE t.fields END`
	afterFields = `, h.appended, h.user_activity_at, h.files_added, h.files_changed, h.files_removed, ` + LifeColumns

	Thread       = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.id = ?`
	ThreadAndKey = `SELECT ` + ThreadColumns + `, t.key` + FromThreads + ` WHERE t.id = ?`
	Children     = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.parent_id = ? AND t.parent_id <> '' AND t.retained_at = 0 ORDER BY t.created_at, t.key`
	InsertThread = `INSERT INTO thread (id, namespace, name, agent, origin_agent, declared_agent, user_id, task_id, title, arguments, created_at,
		parent_id, reference, root_id, depth, child, terminated_at, terminated_reason, registry_status, scoped_env, env_root, archived_at, fields, namespace_uid)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?) RETURNING key`
	Lineage      = `SELECT root_id, depth, terminated_reason, env_root FROM thread WHERE id = ?`
	ThreadKey    = `SELECT key FROM thread WHERE id = ?`
	UpdateThread = `UPDATE thread SET title = ?, registry_status = ?, archived_at = ?, fields = ? WHERE key = ?`
	ThreadFields = `SELECT title, registry_status, archived_at, fields FROM thread WHERE key = ?`
	ThreadAgent  = `SELECT agent, declared_agent FROM thread WHERE key = ?`
	SetAgent     = `UPDATE thread SET agent = ?, declared_agent = ? WHERE key = ?`
	SetArchived  = `UPDATE thread_head SET archived = ? WHERE thread = ?`
	Terminate    = `UPDATE thread SET terminated_at = ?, terminated_reason = ? WHERE key = ?`
	// MarkDeleted changes nothing when it is repeated.
	MarkDeleted = `INSERT INTO deleted_object (uid, deleted_at) VALUES (?, ?) ON CONFLICT (uid) DO NOTHING`
	Deleted     = `SELECT 1 FROM deleted_object WHERE uid = ?`
	// DeletedOrRefused takes the UID, the mark of a refusal, and the time from which on refusals hold.
	DeletedOrRefused = `SELECT 1 FROM deleted_object WHERE uid = ? OR (uid = ? AND deleted_at > ?)`
	MarkRefused      = `INSERT INTO deleted_object (uid, deleted_at) VALUES (?, ?) ON CONFLICT (uid) DO UPDATE SET deleted_at = excluded.deleted_at`
	Readmit          = `DELETE FROM deleted_object WHERE uid = ?`
	DeleteThread     = `DELETE FROM thread WHERE key = ?`

	HeadColumns = `t.id, t.key, t.namespace, t.terminated_at, h.version, h.last_seq, h.counts, h.queued, h.waiting, h.running,
		h.work_since, h.activity_second, h.appended, h.user_activity_at, h.base, h.asleep, h.idle_expiry, h.expires_at, t.parent_id`
	Head       = `SELECT ` + HeadColumns + ` FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.id = ?`
	InsertHead = `INSERT INTO thread_head (thread, namespace, version, last_seq, counts, queued, waiting, running,
		work_since, last_activity_at, activity_second) VALUES (?, ?, 0, 0, '', 0, 0, 0, NULL, ?, ?)`
	UpdateHead = `UPDATE thread_head SET version = ?, last_seq = ?, counts = ?, queued = ?, waiting = ?, running = ?,
		last_activity_at = ?, appended = ?, user_activity_at = ? WHERE thread = ?`
	// UpdateHeadWork also writes since when the thread has work. It leaves alone the indexes of the columns that it does not name.
	UpdateHeadWork = `UPDATE thread_head SET version = ?, last_seq = ?, counts = ?, queued = ?, waiting = ?, running = ?,
		last_activity_at = ?, appended = ?, user_activity_at = ?, work_since = ? WHERE thread = ?`
	// UpdateHeadIndexed also writes the indexed columns.
	UpdateHeadIndexed = `UPDATE thread_head SET version = ?, last_seq = ?, counts = ?, queued = ?, waiting = ?, running = ?,
		last_activity_at = ?, appended = ?, user_activity_at = ?, work_since = ?, activity_second = ? WHERE thread = ?`
	AddDiff = `UPDATE thread_head SET files_added = files_added + ?, files_changed = files_changed + ?, files_removed = files_removed + ?
		WHERE thread = ?`
	Position = `SELECT t.agent, h.last_seq FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.id = ?`
	Counts   = `SELECT t.key, h.counts, h.queued, h.base, h.last_seq, h.asleep FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.id = ?`
)

// Queries that find threads without their ids.
const (
	// A namespace that is cast is not compared with the one in an index: SQLite would compile the statement again for each namespace.
	InOrder = ` ORDER BY t.created_at, t.key LIMIT ?`

	ThreadsByName             = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.name = ?` + InOrder
	ThreadsByShort            = `SELECT ` + ThreadColumns + FromThreads + ` WHERE substr(t.id, 25) = ?` + InOrder
	ThreadsOfNamespaceByName  = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.name = ? AND t.namespace = CAST(? AS TEXT)` + InOrder
	PresentThreadsByName      = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.name = ? AND t.namespace = CAST(? AS TEXT) AND t.retained_at = 0` + InOrder
	ThreadsOfNamespaceByShort = `SELECT ` + ThreadColumns + FromThreads + ` WHERE substr(t.id, 25) = ? AND t.namespace = CAST(? AS TEXT)` + InOrder

	// This lists the namespaces with threads by jumping through the index from one namespace to the next.
	Namespaces = `WITH RECURSIVE n (namespace) AS (
			SELECT min(namespace) FROM thread_head
			UNION ALL
			SELECT (SELECT min(namespace) FROM thread_head WHERE namespace > n.namespace)
			FROM n WHERE n.namespace IS NOT NULL)
		SELECT namespace FROM n WHERE namespace IS NOT NULL`
)
