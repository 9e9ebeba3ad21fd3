package queries

// Queries about how many children live in the scopes of limits. Triggers add each change to child_change. What child_count and child_change
// say together is the number of living children.
const (
	// LivingInScopes returns for each scope its number, and how many changes there are in child_change. Its parameters are those of
	// ScopesOf.
	LivingInScopes = `WITH change AS (SELECT parent_id, kind, agent, n FROM child_change WHERE namespace = ?)
		SELECT scope, CAST(sum(n) AS BIGINT), CAST(sum(changes) AS BIGINT) FROM (
		SELECT scope, n, 0 AS changes FROM child_count WHERE namespace = ? AND scope = 'namespace' AND name = ''
		UNION ALL SELECT scope, n, 0 FROM child_count WHERE namespace = ? AND scope = 'parent' AND name = ?
		UNION ALL SELECT scope, n, 0 FROM child_count WHERE namespace = ? AND scope = 'kind' AND name = ?
		UNION ALL SELECT scope, n, 0 FROM child_count WHERE namespace = ? AND scope = 'agent' AND name = ?
		UNION ALL SELECT 'namespace', n, 1 FROM change
		UNION ALL SELECT 'parent', n, 0 FROM change WHERE parent_id = ?
		UNION ALL SELECT 'kind', n, 0 FROM change WHERE parent_id = ? AND kind = ?
		UNION ALL SELECT 'agent', n, 0 FROM change WHERE agent = ?) c GROUP BY scope`

	// LivingKinds returns the names of scopes, which are those of the kinds of one parent, with the number of each, and how many changes
	// there are in child_change. Its parameters are those of KindsOf.
	LivingKinds = `WITH change AS (SELECT parent_id, kind, n FROM child_change WHERE namespace = ?)
		SELECT name, CAST(sum(n) AS BIGINT), CAST(sum(changes) AS BIGINT) FROM (
		SELECT name, n, 0 AS changes FROM child_count WHERE namespace = ? AND scope = 'kind' AND name >= ? AND name < ?
		UNION ALL SELECT parent_id || '/' || kind, n, 0 FROM change WHERE parent_id = ?
		UNION ALL SELECT '', 0, 1 FROM change) c GROUP BY name`

	// ManyChanges returns a row if a namespace has more changes than a number.
	ManyChanges = `SELECT 1 FROM child_change WHERE namespace = ? LIMIT 1 OFFSET ?`

	// AddChanges adds the changes of a namespace to its counts. Where there are several writers, the changes are removed in the same
	// statement: others may commit between two.
	AddChanges       = `WITH change AS (SELECT namespace, parent_id, kind, agent, n FROM child_change WHERE namespace = ?)` + addToCounts
	RemoveChanges    = `DELETE FROM child_change WHERE namespace = ?`
	AddRemoveChanges = `WITH change AS (` + RemoveChanges + ` RETURNING namespace, parent_id, kind, agent, n)` + addToCounts
	addToCounts      = ` INSERT INTO child_count (namespace, scope, name, n)
		SELECT namespace, scope, name, CAST(sum(n) AS BIGINT) FROM (
		SELECT namespace, 'namespace' AS scope, '' AS name, n FROM change
		UNION ALL SELECT namespace, 'parent', parent_id, n FROM change
		UNION ALL SELECT namespace, 'kind', parent_id || '/' || kind, n FROM change
		UNION ALL SELECT namespace, 'agent', agent, n FROM change) c
		WHERE true GROUP BY namespace, scope, name HAVING sum(n) <> 0
		ON CONFLICT (namespace, scope, name) DO UPDATE SET n = child_count.n + excluded.n`
	// RemoveEmptyCounts removes the counts of scopes in which no child lives.
	RemoveEmptyCounts = `DELETE FROM child_count WHERE namespace = ? AND n = 0`
)

// ScopesOf returns the parameters of LivingInScopes for a child: those of the changes, of the four kinds of scopes, and of the changes in
// the last three of them.
func ScopesOf(namespace, parentID, kind, agent string) []any {
	return []any{namespace, namespace, namespace, parentID, namespace, parentID + "/" + kind, namespace, agent, parentID, parentID, kind, agent}
}

// KindsOf returns the parameters of LivingKinds for a parent. The names of its kinds are between its id with "/" and that with the next
// byte.
func KindsOf(namespace, parentID string) []any {
	return []any{namespace, namespace, parentID + "/", parentID + "0", parentID}
}
