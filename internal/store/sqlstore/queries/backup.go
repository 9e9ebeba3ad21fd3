package queries

// StagingPrefix begins the namespace of threads that are being restored. No namespace of a cluster can have a slash.
const StagingPrefix = "restore/"

// RestoredKept begins the column restored of a thread that was retained when its backup was made.
const RestoredKept = "kept/"

// Backup and restore.
const (
	SchemaVersion = `SELECT max(version_id) FROM goose_db_version WHERE is_applied`
	BeingCut      = `SELECT 1 FROM message_cut c JOIN thread t ON t.key = c.thread WHERE t.namespace = ? AND t.terminated_reason <> 'Purged' LIMIT 1`

	EndedPins    = `DELETE FROM contents_hold WHERE id = ? OR expires_at <= ?`
	PinContents  = `INSERT INTO contents_hold (id, expires_at) VALUES (?, ?)`
	ContentsHeld = `SELECT 1 FROM contents_hold WHERE expires_at > ? LIMIT 1`

	// A restore keeps rows in restore_row that would be visible at once.
	KeepRestoreRow    = `INSERT INTO restore_row (restore, namespace, kind, digest, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	CountRestoreRows  = `SELECT count(*) FROM restore_row WHERE restore = ? AND namespace = ? AND kind = ?`
	RestoreMark       = `SELECT 1 FROM restore_row WHERE restore = ? AND namespace = ? AND kind = ? AND digest = ?`
	ForgetRestoreRows = `DELETE FROM restore_row WHERE restore = ? AND namespace = ? AND kind = ?`
	EffectRowsWait    = `SELECT 1 FROM restore_row WHERE restore = ? AND namespace = ? AND kind IN ('effect_schedule', 'effect_skip', 'effect_firing') LIMIT 1`

	StagedThreads   = `SELECT count(*) FROM thread WHERE namespace = ? AND substr(id, 1, 5) <> 'left:'`
	RestoredThreads = `SELECT count(*) FROM thread WHERE namespace = ? AND restored = ?`
	FinishedThreads = `SELECT count(*) FROM thread WHERE namespace = ? AND restored IN (?, ?)`
	StagedKeys      = `SELECT key, id FROM thread WHERE namespace = ? ORDER BY key LIMIT 100`
	IsStaged        = `SELECT 1 FROM thread WHERE key = ? AND id = ? AND namespace = ?`
	StagedDigest    = `SELECT 1 FROM file f JOIN thread t ON t.key = f.thread WHERE f.digest = ? AND f.digest <> '' AND t.namespace = ? LIMIT 1`
	// MissingContents asks which contents were not sent with the restore. That others have them is not enough: a client that knows a digest
	// could read their files then.
	MissingContents = `SELECT DISTINCT f.digest FROM file f JOIN thread t ON t.key = f.thread WHERE t.namespace = ? AND f.digest <> ''
		AND NOT (EXISTS (SELECT 1 FROM contents c WHERE c.digest = f.digest AND c.size >= 0)
			AND EXISTS (SELECT 1 FROM restore_row k WHERE k.restore = ? AND k.namespace = ? AND k.kind = ? AND k.digest = f.digest))
		ORDER BY f.digest LIMIT 5`
	ShowUsage    = `UPDATE message_usage SET namespace = ? WHERE namespace = ?`
	ShowRemnants = `UPDATE thread SET namespace = '' WHERE namespace = ? AND substr(id, 1, 5) = 'left:'`
	ShowThreads  = `UPDATE thread SET namespace = ? WHERE namespace = ?`

	OrphanOwner = `SELECT id, object_uid, retained_at FROM thread WHERE key = ?`
)

// ContentsOf returns the query for the contents of the files of threads, which cond selects as t.
func ContentsOf(cond string) string {
	return `SELECT c.digest, c.object, c.size FROM contents c WHERE c.size >= 0 AND c.digest IN (SELECT f.digest FROM file f
		JOIN thread t ON t.key = f.thread WHERE ` + cond + ` AND t.terminated_reason <> 'Purged') ORDER BY c.digest`
}
