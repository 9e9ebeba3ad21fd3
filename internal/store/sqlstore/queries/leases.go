package queries

import "strings"

// LeasesAtOnce is how many threads one query names. The number is constant, so that the query is prepared once.
const LeasesAtOnce = 200

// HeldOf takes the time and LeasesAtOnce ids. It says of those that have work whether they have a live lease.
var HeldOf = `SELECT t.id, CASE WHEN EXISTS (SELECT 1 FROM lease l WHERE l.thread = h.thread AND l.expires_at > ?) THEN 1 ELSE 0 END
	FROM thread t JOIN thread_head h ON h.thread = t.key
	WHERE t.id IN (` + strings.TrimSuffix(strings.Repeat("?, ", LeasesAtOnce), ", ") + `) AND h.work_since IS NOT NULL`

// Leases and what may run.
const (
	Lease     = `SELECT owner, epoch, expires_at FROM lease WHERE thread = ?`
	TakeLease = `INSERT INTO lease (thread, owner, epoch, expires_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (thread) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, expires_at = excluded.expires_at, running_in = NULL`
	KeepLease    = `UPDATE lease SET expires_at = ? WHERE thread = ?`
	FreeLease    = `UPDATE lease SET owner = '', expires_at = 0 WHERE thread = ?`
	RenewLease   = `UPDATE lease SET expires_at = ? WHERE thread = (SELECT key FROM thread WHERE id = ?) AND owner = ? AND epoch = ?`
	ReleaseLease = `UPDATE lease SET owner = '', expires_at = 0 WHERE thread = (SELECT key FROM thread WHERE id = ?) AND owner = ? AND epoch = ?`
	RevokeLease  = `UPDATE lease SET owner = '', expires_at = 0, epoch = epoch + 1 WHERE thread = ?`
	FreeLeases   = `UPDATE lease SET owner = '', expires_at = 0 WHERE owner NOT LIKE 'external:%'` // store.ExternalOwner

	// This lists the namespaces with work by jumping through the index from one namespace to the next.
	WorkNamespaces = `WITH RECURSIVE n (namespace) AS (
			SELECT min(namespace) FROM thread_head WHERE work_since IS NOT NULL
			UNION ALL
			SELECT (SELECT min(namespace) FROM thread_head WHERE work_since IS NOT NULL AND namespace > n.namespace)
			FROM n WHERE n.namespace IS NOT NULL)
		SELECT namespace FROM n WHERE namespace IS NOT NULL`
	Work = `SELECT t.id, h.work_since, h.thread FROM thread_head h JOIN thread t ON t.key = h.thread
		WHERE h.namespace = ? AND h.work_since IS NOT NULL AND (h.work_since > ? OR h.work_since = ? AND h.thread > ?)
		AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.thread = h.thread AND l.expires_at > ?)
		ORDER BY h.work_since, h.thread LIMIT ?`
)
