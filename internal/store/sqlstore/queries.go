package sqlstore

import "github.com/skein-dev/skein/internal/store"

// This file and its neighbours queries_*.go hold the store's queries, in the SQL that all dialects share. Lists of
// columns match the scan functions of the same record.

// Threads and their heads.
const (
	threadColumns = `t.id, t.namespace, t.name, t.agent, t.origin_agent, t.declared_agent, t.user_id, t.task_id, t.title, t.arguments, t.created_at,
		t.parent_id, t.reference, t.root_id, t.depth, t.origin_id, t.fork_index, t.child, t.terminated_at, t.terminated_reason, t.registry_status,
		t.scoped_env, h.version, h.counts, h.queued, h.last_activity_at, h.last_seq,
		t.archived_at, t.fields, h.appended, h.user_activity_at, h.files_added, h.files_changed, h.files_removed, ` + lifeColumns
	fromThreads = ` FROM thread_head h JOIN thread t ON t.key = h.thread`

	qThread       = `SELECT ` + threadColumns + fromThreads + ` WHERE t.id = ?`
	qChildren     = `SELECT ` + threadColumns + fromThreads + ` WHERE t.parent_id = ? AND t.parent_id <> '' ORDER BY t.created_at, t.key`
	qInsertThread = `INSERT INTO thread (id, namespace, name, agent, origin_agent, declared_agent, user_id, task_id, title, arguments, created_at,
		parent_id, reference, root_id, depth, child, terminated_at, terminated_reason, registry_status, scoped_env, archived_at, fields)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?) RETURNING key`
	qLineage      = `SELECT root_id, depth, terminated_at FROM thread WHERE id = ?`
	qThreadKey    = `SELECT key FROM thread WHERE id = ?`
	qUpdateThread = `UPDATE thread SET title = ?, registry_status = ?, archived_at = ?, fields = ? WHERE key = ?`
	qThreadFields = `SELECT title, registry_status, archived_at, fields FROM thread WHERE key = ?`
	qThreadAgent  = `SELECT agent, declared_agent FROM thread WHERE key = ?`
	qSetAgent     = `UPDATE thread SET agent = ?, declared_agent = ? WHERE key = ?`
	qSetArchived  = `UPDATE thread_head SET archived = ? WHERE thread = ?`
	qTerminate    = `UPDATE thread SET terminated_at = ?, terminated_reason = ? WHERE key = ?`
	qDeleteThread = `DELETE FROM thread WHERE key = ?`

	headColumns = `t.id, t.key, t.namespace, t.terminated_at, h.version, h.last_seq, h.counts, h.queued, h.waiting, h.running,
		h.work_since, h.activity_second, h.appended, h.user_activity_at, h.base, h.asleep, h.idle_expiry, h.expires_at`
	qHead       = `SELECT ` + headColumns + ` FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.id = ?`
	qInsertHead = `INSERT INTO thread_head (thread, namespace, version, last_seq, counts, queued, waiting, running,
		work_since, last_activity_at, activity_second) VALUES (?, ?, 0, 0, '', 0, 0, 0, NULL, ?, ?)`
	qUpdateHead = `UPDATE thread_head SET version = ?, last_seq = ?, counts = ?, queued = ?, waiting = ?, running = ?,
		last_activity_at = ?, appended = ?, user_activity_at = ? WHERE thread = ?`
	// qUpdateHeadIndexed also writes the indexed columns.
	qUpdateHeadIndexed = `UPDATE thread_head SET version = ?, last_seq = ?, counts = ?, queued = ?, waiting = ?, running = ?,
		last_activity_at = ?, appended = ?, user_activity_at = ?, work_since = ?, activity_second = ? WHERE thread = ?`
	qAddDiff = `UPDATE thread_head SET files_added = files_added + ?, files_changed = files_changed + ?, files_removed = files_removed + ?
		WHERE thread = ?`
	qPosition = `SELECT t.agent, h.last_seq FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.id = ?`
	qCounts   = `SELECT t.key, h.counts, h.queued, h.base, h.last_seq FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.id = ?`
)

// Leases and what may run.
const (
	qLease     = `SELECT owner, epoch, expires_at FROM lease WHERE thread = ?`
	qTakeLease = `INSERT INTO lease (thread, owner, epoch, expires_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (thread) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, expires_at = excluded.expires_at`
	qKeepLease    = `UPDATE lease SET expires_at = ? WHERE thread = ?`
	qFreeLease    = `UPDATE lease SET owner = '', expires_at = 0 WHERE thread = ?`
	qRenewLease   = `UPDATE lease SET expires_at = ? WHERE thread = (SELECT key FROM thread WHERE id = ?) AND owner = ? AND epoch = ?`
	qReleaseLease = `UPDATE lease SET owner = '', expires_at = 0 WHERE thread = (SELECT key FROM thread WHERE id = ?) AND owner = ? AND epoch = ?`
	qRevokeLease  = `UPDATE lease SET owner = '', expires_at = 0, epoch = epoch + 1 WHERE thread = ?`
	qFreeLeases   = `UPDATE lease SET owner = '', expires_at = 0 WHERE owner NOT LIKE 'external:%'` // store.ExternalOwner

	// This lists the namespaces with work by jumping through the index from one namespace to the next.
	qWorkNamespaces = `WITH RECURSIVE n (namespace) AS (
			SELECT min(namespace) FROM thread_head WHERE work_since IS NOT NULL
			UNION ALL
			SELECT (SELECT min(namespace) FROM thread_head WHERE work_since IS NOT NULL AND namespace > n.namespace)
			FROM n WHERE n.namespace IS NOT NULL)
		SELECT namespace FROM n WHERE namespace IS NOT NULL`
	qWork = `SELECT t.id, h.work_since FROM thread_head h JOIN thread t ON t.key = h.thread
		WHERE h.namespace = ? AND h.work_since IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.thread = h.thread AND l.expires_at > ?)
		ORDER BY h.work_since, h.thread LIMIT ?`
)

// Messages.
const (
	messageColumns = `m.seq, m.id, m.role, m.silent, m.depth, m.status, m.created_at, m.run_id, m.tool_call_id, m.content, m.rest`

	qMessage       = `SELECT ` + messageColumns + ` FROM message m JOIN thread t ON t.key = m.thread WHERE t.id = ? AND m.id = ?`
	qMessageByKey  = `SELECT ` + messageColumns + ` FROM message m WHERE m.thread = ? AND m.id = ?`
	qMessageSeq    = `SELECT seq FROM message WHERE thread = ? AND id = ?`
	qInsertMessage = `INSERT INTO message (thread, seq, id, role, silent, depth, status, created_at, run_id, tool_call_id, content, rest)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	qUpdateMessage = `UPDATE message SET silent = ?, status = ?, content = ?, rest = ? WHERE thread = ? AND seq = ?`
	qDeleteMessage = `DELETE FROM message WHERE thread = ? AND seq = ?`
	qToolResults   = `SELECT ` + messageColumns + ` FROM message m WHERE m.thread = ? AND m.tool_call_id = ? AND m.tool_call_id IS NOT NULL
		AND m.role = 'tool' AND m.seq + 0 > ?` // the sum keeps the planner from the index by seq, along which it would read all later messages
)

// The log. A message is its own log entry of its creation.
const (
	qInsertEvent = `INSERT INTO log (thread, seq, type, run_id, message_id, data, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`
	qEvents      = `SELECT l.seq AS seq, l.type, l.run_id, l.message_id, l.data, l.created_at,
			'' AS role, 0 AS silent, 0 AS depth, '' AS status, NULL AS tool_call_id, NULL AS content, NULL AS rest
		FROM log l WHERE l.thread = ? AND l.seq > ?
		UNION ALL
		SELECT m.seq, 'message.created', m.run_id, m.id, NULL, m.created_at,
			m.role, m.silent, m.depth, m.status, m.tool_call_id, m.content, m.rest
		FROM message m WHERE m.thread = ? AND m.seq > ?
		ORDER BY seq LIMIT ?`
	// lineTypes equals the condition of the index log_lines, word for word.
	lineTypes    = `type IN ('code.log', 'handler.log', 'hook.failed', 'task.failed')`
	lineColumns  = `seq, type, run_id, message_id, data, created_at`
	qLines       = `SELECT ` + lineColumns + ` FROM log WHERE thread = ? AND seq > ? AND ` + lineTypes + ` AND (? = '' OR run_id = ?) ORDER BY seq LIMIT ?`
	qNewestLines = `SELECT ` + lineColumns + ` FROM log WHERE thread = ? AND seq > ? AND ` + lineTypes + ` AND (? = '' OR run_id = ?) ORDER BY seq DESC LIMIT ?`
	qCountLines  = `SELECT count(*) FROM log WHERE thread = ? AND ` + lineTypes
	qOldestLines = `SELECT ` + lineColumns + ` FROM log WHERE thread = ? AND ` + lineTypes + ` ORDER BY seq LIMIT ?`
	qRemoveLines = `DELETE FROM log WHERE thread = ? AND seq < ? AND ` + lineTypes
	qReplaceLine = `UPDATE log SET type = ?, run_id = '', message_id = '', data = ? WHERE thread = ? AND seq = ?`
	qLastEdit    = `SELECT COALESCE(MAX(l.seq), 0) FROM thread t JOIN log l ON l.thread = t.key AND l.seq > ? WHERE t.id = ?
		AND l.type IN ('` + store.EventMessageUpdated + `', '` + store.EventMessageDeleted + `', '` + store.EventTruncated + `', '` + store.EventDestroyed + `')`
)

// The inbox.
const (
	inboxColumns  = `i.seq, i.key, i.kind, i.payload, i.created_at, i.held_until, i.tries`
	qInbox        = `SELECT ` + inboxColumns + ` FROM inbox i WHERE i.thread = ? ORDER BY i.seq`
	qInboxOf      = `SELECT ` + inboxColumns + ` FROM thread t JOIN inbox i ON i.thread = t.key WHERE t.id = ? ORDER BY i.seq`
	qInboxItem    = `SELECT ` + inboxColumns + ` FROM inbox i WHERE i.thread = ? AND i.seq = ?`
	qOldestWaits  = `SELECT created_at FROM inbox WHERE thread = ? AND held_until = 0 ORDER BY seq LIMIT 1`
	qHeldIn       = `SELECT seq FROM inbox WHERE thread = ? AND held_until > 0 LIMIT 1`
	qLimitedCount = `SELECT count(*) FROM inbox WHERE thread = ? AND limited = 1`
	qInsertInbox  = `INSERT INTO inbox (thread, seq, key, kind, limited, payload, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`
	qDeleteInbox  = `DELETE FROM inbox WHERE thread = ? AND seq = ? RETURNING kind, held_until`
	qHoldInbox    = `UPDATE inbox SET held_until = ?, tries = ? WHERE thread = ? AND seq = ? AND held_until = 0`
	qHoldLonger   = `UPDATE inbox SET held_until = ?, tries = ? WHERE thread = ? AND seq = ? AND held_until > 0`
	qEmptyInbox   = `DELETE FROM inbox WHERE thread = ?`
	qInboxKey     = `SELECT seq FROM inbox_key WHERE thread = ? AND key = ?`
	qUseInboxKey  = `INSERT INTO inbox_key (thread, key, seq) VALUES (?, ?, ?)`
)

// Runs.
const (
	runColumns = `r.id, r.agent, r.status, r.reason, r.message, r.steps, r.started_at, r.ended_at, r.wake_at, r.state, r.usage, r.session_state`
	fromRuns   = ` FROM run r JOIN thread t ON t.key = r.thread`

	qRun       = `SELECT ` + runColumns + fromRuns + ` WHERE t.id = ? AND r.id = ?`
	qRuns      = `SELECT ` + runColumns + fromRuns + ` WHERE t.id = ? ORDER BY r.seq DESC LIMIT ? OFFSET ?`
	qRunBefore = `SELECT status, started_at, ended_at FROM run WHERE thread = ? AND id = ?`
	qInsertRun = `INSERT INTO run (thread, id, seq, agent, status, reason, message, steps, started_at, ended_at, wake_at, state, usage, session_state)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	qUpdateRun = `UPDATE run SET agent = ?, status = ?, reason = ?, message = ?, steps = ?, started_at = ?, ended_at = ?,
		wake_at = ?, state = ?, usage = ?, session_state = COALESCE(?, session_state) WHERE thread = ? AND id = ?`
	// The conditions are spelled as in the indexes run_wake and inbox_held; otherwise the indexes are not used. 2 is
	// asleepRetained.
	qWakes = `SELECT t.id, r.id, r.wake_at FROM run r JOIN thread t ON t.key = r.thread
		WHERE r.wake_at > 0 AND r.status = 'waiting'
		UNION ALL
		SELECT t.id, '', i.held_until FROM inbox i JOIN thread t ON t.key = i.thread JOIN thread_head h ON h.thread = i.thread
		WHERE i.held_until > 0 AND (h.asleep & 2) = 0 AND h.running = 0
		ORDER BY wake_at LIMIT ? OFFSET ?`
)

// Key-values.
const (
	qValue    = `SELECT v.value FROM kv v JOIN thread t ON t.key = v.thread WHERE t.id = ? AND v.key = ?`
	qPutValue = `INSERT INTO kv (thread, key, value, updated_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (thread, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`
	qDeleteValue = `DELETE FROM kv WHERE thread = ? AND key = ?`
)

// Files.
const (
	fileColumns = `f.path, f.dir, f.mime_type, f.digest, f.size, f.metadata, f.width, f.height, f.created_at`
	fromFiles   = ` FROM file f JOIN thread t ON t.key = f.thread`

	qFile         = `SELECT ` + fileColumns + fromFiles + ` WHERE t.id = ? AND f.path = ?`
	qFilesDirect  = `SELECT ` + fileColumns + fromFiles + ` WHERE t.id = ? AND f.parent = ? ORDER BY f.path`
	qFilesBelow   = `SELECT ` + fileColumns + fromFiles + ` WHERE t.id = ? AND f.path > ? AND f.path < ? ORDER BY f.path`
	qFileBefore   = `SELECT dir, digest, size FROM file WHERE thread = ? AND path = ?`
	qFolderFilled = `SELECT 1 FROM file WHERE thread = ? AND parent = ? LIMIT 1`
	qPutFile      = `INSERT INTO file (thread, path, parent, dir, mime_type, digest, size, metadata, width, height, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (thread, parent, path) DO UPDATE SET mime_type = excluded.mime_type, digest = excluded.digest, size = excluded.size,
			metadata = excluded.metadata, width = excluded.width, height = excluded.height, created_at = excluded.created_at`
	qDeleteFile = `DELETE FROM file WHERE thread = ? AND path = ?`
	qDigests    = `SELECT DISTINCT digest FROM file WHERE thread = ? AND digest <> '' ORDER BY digest`
	qDigestUsed = `SELECT 1 FROM file WHERE digest = ? AND digest <> '' LIMIT 1`

	qContents     = `SELECT object FROM contents WHERE digest = ?`
	qUseContents  = `UPDATE contents SET used_at = ? WHERE digest = ? RETURNING object`
	qKeepContents = `INSERT INTO contents (digest, object, size, used_at) VALUES (?, ?, ?, ?)
		ON CONFLICT DO NOTHING RETURNING object`
	qReplaceObject = `UPDATE contents SET object = ? WHERE digest = ?`
	qDropContents  = `DELETE FROM contents WHERE digest = ?`
	qObjectSize    = `SELECT size FROM contents WHERE object = ?`
	// A row with a digest that no contents have reserves the object's name, so that nothing can refer to the object any
	// more.
	qSweepContents = `INSERT INTO contents (digest, object, size, used_at) VALUES ('swept ' || ?, ?, -1, ?) ON CONFLICT DO NOTHING`
	qForgetSwept   = `DELETE FROM contents WHERE size < 0 AND used_at < ?`
	qOrphanSeen    = `SELECT seen_at FROM orphan_object WHERE object = ?`
	qNoteOrphan    = `INSERT INTO orphan_object (object, seen_at) VALUES (?, ?) ON CONFLICT (object) DO NOTHING`
	qDropOrphan    = `DELETE FROM orphan_object WHERE object = ?`

	qFileUsage  = `SELECT u.files, u.folders, u.bytes, u.max_bytes, u.max_files FROM file_usage u JOIN thread t ON t.key = u.thread WHERE t.id = ?`
	qCountFiles = `INSERT INTO file_usage (thread, files, folders, bytes) VALUES (?, ?, ?, ?)
		ON CONFLICT (thread) DO UPDATE SET files = file_usage.files + excluded.files, folders = file_usage.folders + excluded.folders,
			bytes = file_usage.bytes + excluded.bytes
		RETURNING files, folders, bytes, max_bytes, max_files`
	qSetFileQuota = `INSERT INTO file_usage (thread, files, folders, bytes, max_bytes, max_files) VALUES (?, 0, 0, 0, ?, ?)
		ON CONFLICT (thread) DO UPDATE SET max_bytes = excluded.max_bytes, max_files = excluded.max_files`
)

// Firings of effects.
const (
	firingColumns = `effect_id, due, thread_id, namespace, name, effect, args, status, attempts, error, fired_at, ended_at, hook_depth`

	qFiring       = `SELECT ` + firingColumns + ` FROM effect_firing WHERE effect_id = ? AND due = ?`
	qRecordFiring = `INSERT INTO effect_firing (` + firingColumns + `, owner, available_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?) ON CONFLICT (effect_id, due) DO NOTHING`
	qFiringsReady = `SELECT 1 FROM effect_firing WHERE status = 'pending' AND available_at <= ? LIMIT 1`
	qClaimable    = `SELECT ` + firingColumns + ` FROM effect_firing WHERE status = 'pending' AND available_at <= ?
		ORDER BY available_at, due, effect_id LIMIT ?`
	qClaimFiring  = `UPDATE effect_firing SET owner = ?, available_at = ?, attempts = attempts + 1 WHERE effect_id = ? AND due = ?`
	qRenewFiring  = `UPDATE effect_firing SET owner = ?, available_at = ? WHERE effect_id = ? AND due = ?`
	qFinishFiring = `UPDATE effect_firing SET status = ?, error = ?, ended_at = ?, owner = '', available_at = ?
		WHERE effect_id = ? AND due = ? AND status = 'pending' RETURNING thread_id`
	qDeleteFirings = `DELETE FROM effect_firing WHERE thread_id = ? AND thread_id <> ''`
	qFreeFirings   = `UPDATE effect_firing SET owner = '', available_at = 0 WHERE status = 'pending' AND owner <> ''`
)

// Queries that purge in bounded steps, and the probe of Ping.
const (
	qPurgeMessages = `DELETE FROM message WHERE thread = ? AND seq IN (SELECT seq FROM message WHERE thread = ? ORDER BY seq LIMIT ?)`
	qPurgeLog      = `DELETE FROM log WHERE thread = ? AND seq IN (SELECT seq FROM log WHERE thread = ? ORDER BY seq LIMIT ?)`
	qPurgeKeys     = `DELETE FROM inbox_key WHERE thread = ? AND key IN (SELECT key FROM inbox_key WHERE thread = ? ORDER BY key LIMIT ?)`

	qWriteProbe = `UPDATE probe SET written_at = ? WHERE id = 1`
	qReadProbe  = `SELECT written_at FROM probe WHERE id = 1`
)
