package queries

// Queries about permits for model calls.
const (
	LimitRow    = `INSERT INTO model_limit (namespace, model, requests, tokens, refilled_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (namespace, model) DO NOTHING`
	LockLimit   = `UPDATE model_limit SET refilled_at = refilled_at WHERE namespace = ? AND model = ? RETURNING requests, tokens, refilled_at`
	SetLimit    = `UPDATE model_limit SET requests = ?, tokens = ?, refilled_at = ? WHERE namespace = ? AND model = ?`
	UseTokens   = `UPDATE model_limit SET tokens = tokens - ? WHERE namespace = ? AND model = ?`
	SweepPermit = `DELETE FROM model_permit WHERE namespace = ? AND model = ? AND expires_at <= ?`
	AskPermit   = `INSERT INTO model_permit (namespace, model, id, asked_at, held, expires_at) VALUES (?, ?, ?, ?, 0, ?)
		ON CONFLICT (namespace, model, id) DO UPDATE SET expires_at = excluded.expires_at`
	Permit         = `SELECT asked_at, held FROM model_permit WHERE namespace = ? AND model = ? AND id = ?`
	GrantedPermits = `SELECT count(*) FROM model_permit WHERE namespace = ? AND model = ? AND held = 1`
	Ahead          = `SELECT count(*) FROM model_permit WHERE namespace = ? AND model = ? AND held = 0 AND (asked_at < ? OR (asked_at = ? AND id < ?))`
	GrantPermit    = `UPDATE model_permit SET held = 1 WHERE namespace = ? AND model = ? AND id = ?`
	RenewPermit    = `UPDATE model_permit SET expires_at = ? WHERE namespace = ? AND model = ? AND id = ?`
	DropPermit     = `DELETE FROM model_permit WHERE namespace = ? AND model = ? AND id = ?`
	FreePermits    = `DELETE FROM model_permit`
)
