package queries

import (
	"github.com/skein-dev/skein/internal/store"
)

// Imports, and the log without its messages.
const (
	Import      = `SELECT i.manifest, i.last_seq FROM thread_import i JOIN thread t ON t.key = i.thread WHERE t.id = ?`
	HasImport   = `SELECT 1 FROM thread_import WHERE thread = ?`
	HasOpenRun  = `SELECT 1 FROM run WHERE thread = ? AND status IN ('running', 'waiting') LIMIT 1`
	HasRunSince = `SELECT 1 FROM log WHERE thread = ? AND seq > COALESCE((SELECT max(d.seq) FROM log d WHERE d.thread = ? AND d.type = '` + store.EventDestroyed + `'), 0)
		AND type IN ('` + store.EventRunStarted + `', '` + store.EventRunEnded + `') LIMIT 1`
	// This selects items that start a run of the conversation. Messages are counted elsewhere.
	HasWork      = `SELECT 1 FROM inbox WHERE thread = ? AND kind IN ('` + string(store.InboxTool) + `', '` + string(store.InboxChildResult) + `', '` + string(store.InboxApproval) + `') LIMIT 1`
	InsertImport = `INSERT INTO thread_import (thread, manifest, last_seq) VALUES (?, ?, ?)`
	ClearImport  = `DELETE FROM thread_import WHERE thread = ?`
	NameImported = `UPDATE thread SET title = CASE WHEN title = '' THEN CAST(? AS TEXT) ELSE title END,
		task_id = CASE WHEN task_id = '' THEN CAST(? AS TEXT) ELSE task_id END WHERE key = ?`
	LogEntries = `SELECT seq, type, run_id, message_id, data, created_at FROM log WHERE thread = ? AND seq > ? AND type IN (`
)
