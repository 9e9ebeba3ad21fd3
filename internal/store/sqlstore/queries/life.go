package queries

import "strings"

// The end of conversations and of their objects.
const (
	LifeColumns = `t.object_uid, t.namespace_uid, t.retained_at, t.destroyed_at, t.destroyed_reason, h.idle_expiry, h.asleep`

	SetAsleep = `UPDATE thread_head SET asleep = ? WHERE thread = ?`

	Activity    = `SELECT last_activity_at FROM thread_head WHERE thread = ?`
	SetExpiry   = `UPDATE thread_head SET idle_expiry = ?, expires_at = ? WHERE thread = ?`
	ArmExpiry   = `UPDATE thread_head SET expires_at = ? WHERE thread = ?`
	IdleExpired = `SELECT t.id FROM thread_head h JOIN thread t ON t.key = h.thread
		WHERE h.expires_at IS NOT NULL AND h.expires_at <= ? ORDER BY h.expires_at LIMIT ?`
	NewestRun  = `SELECT ` + RunColumns + ` FROM run r WHERE r.thread = ? ORDER BY r.seq DESC LIMIT 1`
	LeaseUntil = `SELECT expires_at FROM lease WHERE thread = ? AND owner <> ''`

	Destroyed = `UPDATE thread SET destroyed_at = ?, destroyed_reason = ? WHERE key = ?`

	SetRetained = `UPDATE thread SET retained_at = ?, namespace_uid = ?, restored = '' WHERE key = ?`
	Adopt       = `UPDATE thread SET object_uid = ?, namespace_uid = ?, retained_at = 0, name = ?, agent = ?, declared_agent = ?, title = ?, parent_id = '',
		reference = '', root_id = id, depth = 0, child = NULL, registry_status = ''` + keepEnvRoot + ` WHERE key = ?`
	// keepEnvRoot lets variables be opened as they were sealed, under the root that a thread had.
	keepEnvRoot = `, env_root = CASE env_root WHEN '' THEN root_id ELSE env_root END`
	// ElsewhereBelow takes a thread twice. It selects what is below it and has another root, with its depth below the thread.
	ElsewhereBelow = `WITH RECURSIVE tree (id, depth) AS (SELECT id, CAST(0 AS BIGINT) FROM thread WHERE id = ?
		UNION ALL SELECT t.id, tree.depth + 1 FROM tree JOIN thread t ON t.parent_id = tree.id AND t.parent_id <> '')
		SELECT t.key, tree.depth FROM tree JOIN thread t ON t.id = tree.id WHERE tree.depth > 0 AND t.root_id <> ? LIMIT ?`
	Reroot = `UPDATE thread SET root_id = ?, depth = ?` + keepEnvRoot + ` WHERE key = ?`
	// RerootUsage lets the purge of the new root fold what the thread used. Its ancestors keep it in their sums until then.
	RerootUsage = `UPDATE usage_sum SET root_id = ? WHERE thread_id = (SELECT id FROM thread WHERE key = ?) AND thread_id <> ''`
	// AdoptRestored keeps everything as it was in the backup.
	AdoptRestored   = `UPDATE thread SET object_uid = ?, namespace_uid = ?, retained_at = 0, name = ? WHERE key = ?`
	Owner           = `SELECT id, object_uid, namespace_uid, retained_at, title, restored FROM thread WHERE key = ?`
	Restored        = `SELECT restored FROM thread WHERE id = ?`
	MarkPurged      = `UPDATE thread SET object_uid = ? WHERE key = ?`
	DropFirings     = `DELETE FROM effect_firing WHERE thread_id = ? AND thread_id <> '' AND status IN ('pending', 'queued', 'running')`
	OwnedThreads    = `SELECT id, name, object_uid FROM thread WHERE namespace = CAST(? AS TEXT) AND retained_at = 0 AND id > ? ORDER BY id LIMIT ?`
	RetainedThreads = `SELECT ` + PageColumns + FromThreads + ` WHERE t.namespace = CAST(? AS TEXT) AND t.retained_at <> 0 AND t.id > ? ORDER BY t.id LIMIT ?`
	// UndeclaredThreads has the condition of the index thread_undeclared; otherwise the index is not used. A backup's threads get their
	// objects from a restore.
	UndeclaredThreads = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.retained_at <> 0 AND t.object_uid = '' AND substr(t.id, 15, 1) = '5'
		AND t.restored = '' AND t.id > ? ORDER BY t.id LIMIT ?`
	// RetainedBefore takes the time, and the owner of threads that are being purged.
	RetainedBefore = `SELECT ` + ThreadColumns + FromThreads + ` WHERE t.retained_at <> 0 AND (t.retained_at < ? OR t.object_uid = ?) ORDER BY t.retained_at LIMIT ?`
)

// ForeignCondition returns the condition that a row of thread is retained data of a namespace with none of the UIDs, and the
// arguments of the condition. alias is the row's name in the query.
func ForeignCondition(alias string, namespaceUIDs []string) (cond string, args []any) {
	cond = alias + `.retained_at <> 0 AND ` + alias + `.namespace_uid <> ''`
	if len(namespaceUIDs) == 0 {
		return cond, nil
	}
	among, args := Placeholders(namespaceUIDs)
	return cond + ` AND ` + alias + `.namespace_uid NOT IN ` + among, args
}

// Placeholders returns a list of placeholders for IN, and their arguments. There must be at least one value.
func Placeholders(values []string) (list string, args []any) {
	for _, v := range values {
		args = append(args, v)
	}
	return `(?` + strings.Repeat(`, ?`, len(values)-1) + `)`, args
}
