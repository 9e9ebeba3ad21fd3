package queries

// The inbox.
const (
	InboxColumns = `i.seq, i.key, i.kind, i.payload, i.created_at, i.held_until, i.tries`
	Inbox        = `SELECT ` + InboxColumns + ` FROM inbox i WHERE i.thread = ? ORDER BY i.seq`
	InboxOf      = `SELECT ` + InboxColumns + ` FROM thread t JOIN inbox i ON i.thread = t.key WHERE t.id = ? ORDER BY i.seq`
	InboxItem    = `SELECT ` + InboxColumns + ` FROM inbox i WHERE i.thread = ? AND i.seq = ?`
	InboxKeyed   = `SELECT ` + InboxColumns + ` FROM inbox_key k JOIN inbox i ON i.thread = k.thread AND i.seq = k.seq WHERE k.thread = ? AND k.key = ?`
	InboxBetween = `SELECT ` + InboxColumns + ` FROM inbox i WHERE i.thread = ? AND i.seq >= ? AND i.seq <= ? ORDER BY i.seq`
	OldestWaits  = `SELECT created_at FROM inbox WHERE thread = ? AND held_until = 0 ORDER BY seq LIMIT 1`
	DelayedIn    = `SELECT seq FROM inbox WHERE thread = ? AND held_until > 0 LIMIT 1`
	LimitedCount = `SELECT count(*) FROM inbox WHERE thread = ? AND limited = 1`
	WaitingBytes = `SELECT coalesce(sum(length(payload)), 0) FROM inbox WHERE thread = ?`
	InsertInbox  = `INSERT INTO inbox (thread, seq, key, kind, limited, payload, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`
	DeleteInbox  = `DELETE FROM inbox WHERE thread = ? AND seq = ? RETURNING kind, held_until`
	// DeleteMessageItem removes a message that is not delayed.
	DeleteMessageItem = `DELETE FROM inbox WHERE thread = ? AND seq = ? AND kind = 'message' AND held_until = 0`
	DelayInbox        = `UPDATE inbox SET held_until = ?, tries = ? WHERE thread = ? AND seq = ? AND held_until = 0`
	DelayLonger       = `UPDATE inbox SET held_until = ?, tries = ? WHERE thread = ? AND seq = ? AND held_until > 0`
	EndDelays         = `UPDATE inbox SET held_until = 0 WHERE thread = ? AND held_until > 0 AND kind <> 'hook'`
	EmptyInbox        = `DELETE FROM inbox WHERE thread = ?`
	InboxKey          = `SELECT seq FROM inbox_key WHERE thread = ? AND key = ?`
	UseInboxKey       = `INSERT INTO inbox_key (thread, key, seq, used_at) VALUES (?, ?, ?, ?)`
)
