package queries

// OfNamespace is the condition that a row belongs to a namespace by its UID, or that its namespace is not known yet. It takes the UID
// twice; "" stands for any namespace.
const OfNamespace = ` AND (CAST(? AS TEXT) = '' OR namespace_uid IN ('', ?))`

// The cluster whose namespaces the UIDs of rows are of.
const (
	Cluster    = `SELECT uid FROM cluster WHERE id = 1`
	SetCluster = `INSERT INTO cluster (id, uid) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET uid = excluded.uid`
)

// FormerOwners returns the namespaces that have rows of kinds that are removed soon after a namespace is gone, in the order in which they were used
// last. Retained threads, remnants and restores stay for longer, so they are no evidence.
const FormerOwners = `SELECT o.namespace, o.namespace_uid FROM (
		SELECT namespace, namespace_uid FROM kv_service UNION SELECT namespace, namespace_uid FROM usage_sum
		UNION SELECT namespace, namespace_uid FROM thread WHERE retained_at = 0) o
	LEFT JOIN (SELECT namespace, namespace_uid, max(used_at) AS used_at FROM (
		SELECT namespace, namespace_uid, created_at AS used_at FROM thread UNION ALL SELECT namespace, namespace_uid, created_at FROM lifecycle
		UNION ALL SELECT namespace, namespace_uid, updated_at FROM kv_service) e GROUP BY namespace, namespace_uid) u
	ON u.namespace = o.namespace AND u.namespace_uid = o.namespace_uid
	WHERE o.namespace <> '' AND o.namespace_uid <> '' ORDER BY o.namespace, COALESCE(u.used_at, 0), o.namespace_uid`

// GiveThreads gives threads that have an owner to another one. It takes a new UID, an old UID, a name, the old UID again, and how many threads it
// may change. A thread that another transaction has changed meanwhile is left alone.
func GiveThreads(retained bool) string {
	which := `retained_at = 0`
	if retained {
		which = `retained_at <> 0`
	}
	return `UPDATE thread SET namespace_uid = ? WHERE namespace_uid = ? AND ` + which + ` AND key IN (
		SELECT key FROM thread WHERE namespace = ? AND namespace_uid = ? AND ` + which + ` LIMIT ?)`
}

// Owned are the queries for the rows of a table that belong to namespaces. NextOwner takes a name and a UID, and returns the next ones. Give
// takes a new UID, a name, an old UID, the last two again, and how many rows it may change. Drop takes a name and a UID, both again, and
// how many rows it may remove; it is "" where rows have an end of their own.
type Owned struct{ NextOwner, Give, Drop string }

// KVOwned, UsageOwned and ThreadsOwned are those of the tables. Threads are asked for those without an owner only: the others have theirs
// from the start, and retained data has the one that it was retained with.
var (
	KVOwned    = ownedBy("kv_service", "store, key")
	UsageOwned = ownedBy("usage_sum", "agent, thread_id")

	ThreadsOwned = Owned{
		NextOwner: `SELECT namespace, '' FROM thread WHERE namespace_uid = '' AND retained_at = 0 AND (namespace, '') > (?, ?) ORDER BY namespace LIMIT 1`,
		Give: `UPDATE thread SET namespace_uid = ? WHERE namespace = ? AND namespace_uid = ? AND retained_at = 0 AND key IN (
			SELECT key FROM thread WHERE namespace = ? AND namespace_uid = ? AND namespace_uid = '' AND retained_at = 0 LIMIT ?)`,
	}
)

// ownedBy returns the queries for a table. key are the columns of its primary key behind the namespace.
func ownedBy(table, key string) Owned {
	some := ` WHERE namespace = ? AND namespace_uid = ? AND (` + key + `) IN (SELECT ` + key + ` FROM ` + table + ` WHERE namespace = ? AND namespace_uid = ? LIMIT ?)`
	return Owned{
		NextOwner: `SELECT namespace, namespace_uid FROM ` + table + ` WHERE (namespace, namespace_uid) > (?, ?) ORDER BY namespace, namespace_uid LIMIT 1`,
		Give:      `UPDATE ` + table + ` SET namespace_uid = ?` + some,
		Drop:      `DELETE FROM ` + table + some,
	}
}
