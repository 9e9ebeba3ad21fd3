package queries

// Variables of threads. scoped_env holds the names that a thread does not inherit, each between commas. A name is among
// them when removing it with its commas changes the text.
const (
	EnvColumns = `e.name, e.type, e.value, e.key_id, e.origin, e.entry, e.version, e.updated_at`

	// EnvOf has one row of NULLs for a thread without variables, and none for a thread that does not exist.
	EnvOf  = `SELECT ` + EnvColumns + ` FROM thread t LEFT JOIN thread_env e ON e.thread = t.key WHERE t.id = ? ORDER BY e.name`
	SetEnv = `INSERT INTO thread_env (thread, name, type, value, key_id, origin, entry, version, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (thread, name) DO UPDATE SET type = CASE WHEN ? = 1 THEN thread_env.type ELSE excluded.type END,
			value = excluded.value, key_id = excluded.key_id, origin = excluded.origin,
			entry = CASE WHEN excluded.entry = '' THEN thread_env.entry ELSE excluded.entry END,
			version = CASE WHEN excluded.entry = '' THEN thread_env.version ELSE excluded.version END,
			updated_at = excluded.updated_at
		RETURNING type`
	UnsetEnv          = `DELETE FROM thread_env WHERE thread = ? AND name = ?`
	UnsetInheritedEnv = `DELETE FROM thread_env WHERE thread = ? AND name = ? AND origin = 'inherited'`
	ScopeEnv          = `UPDATE thread SET scoped_env = ? WHERE key = ?`
	ScopedEnv         = `SELECT scoped_env FROM thread WHERE key = ?`
	// InheritEnv copies to a new child what it inherits from its parent.
	InheritEnv = `INSERT INTO thread_env (thread, name, type, value, key_id, origin, entry, version, updated_at)
		SELECT c.key, e.name, e.type, e.value, e.key_id, 'inherited', '', '', e.updated_at
		FROM thread c JOIN thread p ON p.id = c.parent_id JOIN thread_env e ON e.thread = p.key
		WHERE c.key = ? AND replace(c.scoped_env, ',' || e.name || ',', '') = c.scoped_env`
	// EnvHeirs selects the active descendants that a name reaches.
	EnvHeirs = `WITH RECURSIVE heir (id) AS (
			SELECT t.id FROM thread t WHERE t.parent_id = ? AND t.parent_id <> '' AND t.terminated_at = 0
				AND replace(t.scoped_env, ?, '') = t.scoped_env
			UNION ALL
			SELECT t.id FROM heir JOIN thread t ON t.parent_id = heir.id AND t.parent_id <> ''
			WHERE t.terminated_at = 0 AND replace(t.scoped_env, ?, '') = t.scoped_env)
		SELECT id FROM heir`
	EnvWaits   = `SELECT 1 FROM run WHERE thread = ? AND status = 'waiting' AND reason = 'EnvMissing' LIMIT 1`
	EnvWaiting = `SELECT DISTINCT t.id FROM run r JOIN thread t ON t.key = r.thread
		WHERE r.status = 'waiting' AND r.reason = 'EnvMissing' AND (? = '' OR t.namespace = ?) AND t.id > ? ORDER BY t.id LIMIT ?`

	EnvKeys     = `SELECT key_id, count(*) FROM thread_env GROUP BY key_id`
	EnvNotUnder = `SELECT t.id, CASE t.env_root WHEN '' THEN t.root_id ELSE t.env_root END, e.name, e.value, e.key_id FROM thread t JOIN thread_env e ON e.thread = t.key
		WHERE e.key_id <> ? AND (t.id > ? OR (t.id = ? AND e.name > ?)) ORDER BY t.id, e.name LIMIT ?`
	ResealEnv = `UPDATE thread_env SET value = ?, key_id = ?
		WHERE thread = (SELECT key FROM thread WHERE id = ?) AND name = ? AND value = ?`
)
