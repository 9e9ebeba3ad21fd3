package queries

// Removals of messages that take more than one transaction. A row of message_cut says which rows of a thread are not its
// messages any more.
const (
	Removal     = `SELECT lo, hi, own, view_key, left_key, logged, late, began_at FROM message_cut WHERE thread = ?`
	PutRemoval  = `INSERT INTO message_cut (thread, lo, hi, own, view_key, left_key, logged, late, began_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	SetRemoval  = `UPDATE message_cut SET own = ?, view_key = ?, left_key = ?, logged = ?, late = ? WHERE thread = ?`
	DropRemoval = `DELETE FROM message_cut WHERE thread = ?`
	Removals    = `SELECT t.id FROM message_cut c JOIN thread t ON t.key = c.thread WHERE c.began_at < ? ORDER BY c.began_at LIMIT ?`
	// kept is the condition that a row m of message belongs to its thread.
	kept = ` NOT EXISTS (SELECT 1 FROM message_cut c WHERE c.thread = m.thread AND c.lo < m.seq AND c.hi >= m.seq)`

	CountRows    = `SELECT count(*) FROM message WHERE thread = ? AND seq > ? AND seq <= ?`
	NewestOf     = `SELECT COALESCE(min(s.seq), 0), count(*) FROM (SELECT seq FROM message WHERE thread = ? AND seq > ? AND seq <= ? ORDER BY seq DESC LIMIT ?) s`
	DropMessages = `DELETE FROM message WHERE thread = ? AND seq > ? AND seq <= ?`
	DropVectors  = `DELETE FROM embedding WHERE thread = ? AND seq > ? AND seq <= ?`
	DropBlocks   = `DELETE FROM message_block WHERE thread = ? AND at > ? AND at <= ?`

	GiveSegment   = `UPDATE message_segment SET thread = ? WHERE thread = ? AND lo = ?`
	LastSegment   = `SELECT ` + SegmentColumns + ` FROM message_segment s WHERE s.thread = ? ORDER BY s.lo DESC LIMIT 1`
	ExtendSegment = `UPDATE message_segment SET lo = ? WHERE thread = ? AND lo = ? AND source = ?`
)
