package queries

// Queries that give a root thread a parent.
const (
	OwnLineage = `SELECT parent_id, reference, root_id, env_root, depth, terminated_at, namespace FROM thread WHERE id = ?`

	treeOf = `WITH RECURSIVE tree (id) AS (SELECT id FROM thread WHERE id = ?
		UNION SELECT t.id FROM tree JOIN thread t ON t.parent_id = tree.id AND t.parent_id <> '') `
	TreeHasEnv  = treeOf + `SELECT count(*) FROM tree JOIN thread t ON t.id = tree.id JOIN thread_env e ON e.thread = t.key`
	MoveTree    = treeOf + `UPDATE thread SET root_id = ?, env_root = ?, depth = depth + ? WHERE id IN (SELECT id FROM tree)`
	MoveUsage   = `UPDATE usage_sum SET root_id = ? WHERE root_id = ?`
	Attach      = `UPDATE thread SET parent_id = ?, reference = ?, child = ?, registry_status = ? WHERE key = ?`
	AttachUsage = `UPDATE usage_sum SET parent_id = ? WHERE thread_id = ? AND thread_id <> ''`
)
