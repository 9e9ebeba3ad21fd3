package queries

// Firings of effects.
const (
	FiringColumns = `effect_id, due, thread_id, namespace, name, effect, args, status, attempts, error, fired_at, ended_at, hook_depth`

	Firing       = `SELECT ` + FiringColumns + ` FROM effect_firing WHERE effect_id = ? AND due = ?`
	RecordFiring = `INSERT INTO effect_firing (` + FiringColumns + `, owner, available_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?) ON CONFLICT (effect_id, due) DO NOTHING`
	FiringsReady = `SELECT 1 FROM effect_firing WHERE status = 'pending' AND available_at <= ? LIMIT 1`
	Claimable    = `SELECT ` + FiringColumns + ` FROM effect_firing WHERE status = 'pending' AND available_at <= ?
		ORDER BY available_at, due, effect_id LIMIT ?`
	ClaimFiring  = `UPDATE effect_firing SET owner = ?, available_at = ?, attempts = attempts + 1 WHERE effect_id = ? AND due = ?`
	RenewFiring  = `UPDATE effect_firing SET owner = ?, available_at = ? WHERE effect_id = ? AND due = ?`
	FinishFiring = `UPDATE effect_firing SET status = ?, error = ?, ended_at = ?, owner = '', available_at = ?
		WHERE effect_id = ? AND due = ? AND status = 'pending' RETURNING thread_id`
	DeleteFirings = `DELETE FROM effect_firing WHERE thread_id = ? AND thread_id <> ''`
	FreeFirings   = `UPDATE effect_firing SET owner = '', available_at = 0 WHERE status = 'pending' AND owner <> ''`
)
