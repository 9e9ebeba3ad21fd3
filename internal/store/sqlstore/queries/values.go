package queries

// Key-values.
const (
	Value  = `SELECT v.value FROM kv v JOIN thread t ON t.key = v.thread WHERE t.id = ? AND v.key = ?`
	Values = `SELECT v.key, CASE WHEN length(v.value) <= ? THEN v.value END FROM kv v JOIN thread t ON t.key = v.thread WHERE t.id = ?
		ORDER BY v.key LIMIT ?`
	PutValue = `INSERT INTO kv (thread, key, value, updated_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (thread, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`
	DeleteValue = `DELETE FROM kv WHERE thread = ? AND key = ?`
)

// Keys of a thread's key-values, and the key-value service.
const (
	ValueKeys = `SELECT v.key FROM kv v WHERE v.thread = ? AND v.key > ? AND v.key >= ? AND v.key < ? ORDER BY v.key LIMIT ?`

	GetKV = `SELECT value, expires_at, updated_at FROM kv_service WHERE namespace = ? AND store = ? AND key = ?` + OfNamespace + `
		AND (expires_at = 0 OR expires_at > ?)`
	// SetKV also takes the place of a value of an earlier namespace.
	SetKV = `INSERT INTO kv_service (namespace, store, key, namespace_uid, expires_at, updated_at, value) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, store, key) DO UPDATE SET namespace_uid = excluded.namespace_uid, expires_at = excluded.expires_at,
			updated_at = excluded.updated_at, value = excluded.value`
	DeleteKV = `DELETE FROM kv_service WHERE namespace = ? AND store = ? AND key = ?` + OfNamespace + ` RETURNING expires_at`
	KVKeys   = `SELECT key FROM kv_service WHERE namespace = ? AND store = ?` + OfNamespace + ` AND key > ? AND key >= ? AND key < ?
		AND (expires_at = 0 OR expires_at > ?) ORDER BY key LIMIT ?`
	Expired  = `SELECT namespace, store, key FROM kv_service WHERE expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?`
	ExpireKV = `DELETE FROM kv_service WHERE namespace = ? AND store = ? AND key = ? AND expires_at > 0 AND expires_at <= ?`
)
