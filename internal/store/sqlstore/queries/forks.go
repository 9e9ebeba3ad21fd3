package queries

// Positions of messages, segments of forks, relationships.
const (
	BlockColumns = `at, spoken, silent, deep`

	BlockFloor  = `SELECT ` + BlockColumns + ` FROM message_block WHERE thread = ? AND at <= ? ORDER BY at DESC LIMIT 1`
	BlocksFrom  = `SELECT ` + BlockColumns + ` FROM message_block WHERE thread = ? AND at >= ? ORDER BY at`
	PutBlock    = `INSERT INTO message_block (thread, at, spoken, silent, deep) VALUES (?, ?, ?, ?, ?) ON CONFLICT (thread, at) DO NOTHING`
	ShiftBlocks = `UPDATE message_block SET spoken = spoken + ?, silent = silent + ? WHERE thread = ? AND at >= ?`
	DeepenBlock = `UPDATE message_block SET deep = ? WHERE thread = ? AND at = ?`
	CutBlocks   = `DELETE FROM message_block WHERE thread = ? AND at > ?`
	CopyBlocks  = `INSERT INTO message_block (thread, at, spoken, silent, deep) SELECT CAST(? AS BIGINT), at, spoken, silent, deep FROM message_block WHERE thread = ? AND at >= ? AND at <= ?
		ON CONFLICT (thread, at) DO NOTHING`
	CountBetween = `SELECT depth, silent, count(*) FROM message WHERE thread = ? AND seq > ? AND seq <= ? GROUP BY depth, silent`

	SegmentColumns = `s.thread, s.lo, s.hi, s.source`

	Segments     = `SELECT ` + SegmentColumns + ` FROM message_segment s WHERE s.thread = ? AND s.hi > ? ORDER BY s.lo`
	NextSegment  = `SELECT ` + SegmentColumns + ` FROM message_segment s WHERE s.thread = ? AND s.hi > ? ORDER BY s.lo LIMIT 1`
	SegmentFloor = `SELECT ` + SegmentColumns + ` FROM message_segment s WHERE s.thread = ? AND s.lo < ? ORDER BY s.lo DESC LIMIT 1`
	ReadersOf    = `SELECT ` + SegmentColumns + ` FROM message_segment s WHERE s.source = ? AND s.hi > ? AND s.thread <> s.source ORDER BY s.thread, s.lo`
	ReadersAt    = `SELECT ` + SegmentColumns + ` FROM message_segment s WHERE s.source = ? AND s.hi >= ? AND s.lo < ? AND s.thread <> s.source ORDER BY s.thread`
	PutSegment   = `INSERT INTO message_segment (thread, lo, hi, source) VALUES (?, ?, ?, ?)`
	// CopySegments copies the segments of a thread up to a sequence number.
	CopySegments = `INSERT INTO message_segment (thread, lo, hi, source)
		SELECT CAST(? AS BIGINT), lo, CASE WHEN hi > ? THEN CAST(? AS BIGINT) ELSE hi END, source FROM message_segment WHERE thread = ? AND lo < ?`
	CountSegments = `SELECT count(*), count(DISTINCT source) FROM message_segment WHERE thread = ? AND lo < ?`
	// Sources returns the threads whose messages a fork has inherited, without remnants, which have no writer.
	Sources       = `SELECT t.id FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.key IN (SELECT source FROM message_segment WHERE thread = ?) ORDER BY t.key`
	DeleteSegment = `DELETE FROM message_segment WHERE thread = ? AND lo = ?`
	MoveSegment   = `UPDATE message_segment SET source = ? WHERE thread = ? AND lo = ?`
	TrimSegment   = `UPDATE message_segment SET hi = ? WHERE thread = ? AND lo < ? AND hi > ?`
	CutSegments   = `DELETE FROM message_segment WHERE thread = ? AND lo >= ?`
	ThreadIDByKey = `SELECT id FROM thread WHERE key = ?`
	Origin        = `UPDATE thread SET origin_id = ?, fork_index = ? WHERE key = ?`
	HeadBase      = `UPDATE thread_head SET base = ? WHERE thread = ?`
	MessageAfter  = `SELECT id, seq FROM message m WHERE m.thread = ? AND m.seq > ? AND m.seq <= ? ORDER BY m.seq LIMIT 1 OFFSET ?`
	KeyAndBase    = `SELECT t.key, h.base FROM thread t JOIN thread_head h ON h.thread = t.key WHERE t.id = ?`
	CopyMessage   = `INSERT INTO message (thread, seq, id, role, silent, depth, status, created_at, run_id, tool_call_id, content, rest, summary_to)
		SELECT CAST(? AS BIGINT), seq, id, role, silent, depth, status, created_at, run_id, tool_call_id, content, rest, summary_to FROM message WHERE thread = ? AND seq = ?`

	FromInherited    = ` FROM message m JOIN message_segment s ON s.source = m.thread AND s.lo < m.seq AND s.hi >= m.seq`
	Inherited        = `SELECT ` + MessageColumns + FromInherited + ` JOIN thread t ON t.key = s.thread WHERE m.id = ? AND t.id = ?`
	InheritedByKey   = `SELECT ` + MessageColumns + FromInherited + ` WHERE m.id = ? AND s.thread = ?`
	InheritedResults = `SELECT ` + MessageColumns + ` FROM message m WHERE m.thread = ? AND m.tool_call_id = ? AND m.tool_call_id IS NOT NULL
		AND m.role = 'tool' AND m.seq + 0 > ? AND m.seq + 0 <= ?`
	InheritedEvents = `SELECT m.seq, 'message.created', m.run_id, m.id, NULL, m.created_at,
			m.role, m.silent, m.depth, m.status, m.tool_call_id, m.content, m.rest
		FROM message m WHERE m.thread = ? AND m.seq > ? AND m.seq <= ? ORDER BY m.seq LIMIT ?`

	// InsertLeft creates the remnant of a thread for the forks that read it. A remnant has no head, so no list and no
	// lookup shows it.
	InsertLeft = `INSERT INTO thread (id, namespace, name, agent, user_id, task_id, title, created_at, parent_id, reference, root_id,
		depth, terminated_at, terminated_reason, registry_status) VALUES (?, '', '', '', '', '', '', ?, '', '', '', 0, 0, '', '') RETURNING key`
	MoveMessages = `UPDATE message SET thread = ? WHERE thread = ? AND seq > ? AND seq <= ? AND EXISTS (SELECT 1 FROM message_segment s
		WHERE s.source = message.thread AND s.thread <> s.source AND s.lo < message.seq AND s.hi >= message.seq)`
	// RemnantsOf returns the remnants that the segments of a thread name.
	RemnantsOf = `SELECT DISTINCT s.source FROM message_segment s JOIN thread t ON t.key = s.source WHERE s.thread = ? AND t.namespace = ''`
	// IsUnread returns whether a remnant has no reader.
	IsUnread = `SELECT ` + unread + ` FROM thread t WHERE t.key = ? AND t.namespace = ''`
	// Remnants returns the remnants after a key, and whether each has no reader.
	Remnants = `SELECT t.key, ` + unread + ` FROM thread t WHERE t.namespace = '' AND t.key > ? ORDER BY t.key LIMIT ?`
	unread   = `CASE WHEN EXISTS (SELECT 1 FROM message_segment s WHERE s.source = t.key)
		OR EXISTS (SELECT 1 FROM message_cut c WHERE c.view_key = t.key OR c.left_key = t.key) THEN 0 ELSE 1 END`

	// The creation of removed messages stays in the log, which only grows (LOG-03).
	LogRemoved = `INSERT INTO log (thread, seq, type, run_id, message_id, data, created_at)
		SELECT CAST(? AS BIGINT), m.seq, 'message.created', m.run_id, m.id, NULL, m.created_at FROM message m WHERE m.thread = ? AND m.seq > ? AND m.seq <= ?`
	LogDeletions = `INSERT INTO log (thread, seq, type, run_id, message_id, data, created_at)
		SELECT CAST(? AS BIGINT), ? + row_number() OVER (ORDER BY m.seq), 'message.deleted', m.run_id, m.id, NULL, CAST(? AS BIGINT)
		FROM message m WHERE m.thread = ? AND m.seq > ? AND m.seq <= ?`
	CutMessages = `DELETE FROM message WHERE thread = ? AND seq > ?`

	CopyFiles = `INSERT INTO file (thread, path, parent, dir, mime_type, digest, size, metadata, width, height, created_at)
		SELECT CAST(? AS BIGINT), path, parent, dir, mime_type, digest, size, metadata, width, height, created_at FROM file WHERE thread = ?`

	CopyFileUsage = `INSERT INTO file_usage (thread, namespace, files, folders, bytes)
		SELECT CAST(? AS BIGINT), namespace, files, folders, bytes FROM file_usage WHERE thread = ?`

	RelationshipColumns = `r.peer, coalesce((SELECT p.name FROM thread p WHERE p.id = r.peer), ''), r.type, r.role, r.message_index, r.created_at, r.comment`

	PutRelationship = `INSERT INTO relationship (thread, peer, type, role, message_index, message_seq, created_at, comment) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (thread, peer, type, role) DO NOTHING`
	Relationships     = `SELECT ` + RelationshipColumns + ` FROM relationship r WHERE r.thread = ? ORDER BY r.created_at, r.peer, r.type, r.role LIMIT ? OFFSET ?`
	AsChild           = `SELECT ` + RelationshipColumns + ` FROM relationship r WHERE r.thread = ? AND r.role = 'child' ORDER BY r.created_at, r.peer, r.type LIMIT ?`
	AsParent          = `SELECT ` + RelationshipColumns + ` FROM relationship r WHERE r.thread = ? AND r.role = 'parent' ORDER BY r.created_at DESC, r.peer, r.type LIMIT ?`
	CountRelationship = `SELECT count(*) FROM relationship WHERE thread = ?`
	Relationship      = `SELECT ` + RelationshipColumns + ` FROM relationship r WHERE r.thread = ? AND r.peer = ? AND r.type = ? AND r.role = ?`
	LateRelationships = `SELECT ` + RelationshipColumns + ` FROM relationship r WHERE r.thread = ? AND` + late + `
		ORDER BY r.peer, r.type LIMIT ?`
	CountLate = `SELECT count(*) FROM (SELECT 1 FROM relationship r WHERE r.thread = ? AND` + late + ` LIMIT ?) l`
	// late selects the relationships that were made past a message of the parent: by its sequence number, or else by the index that it had.
	late = ` r.role = 'parent' AND (r.message_seq > ? OR r.message_seq = 0 AND r.message_index > ?)`

	DropRelationship = `DELETE FROM relationship WHERE thread = ? AND peer = ? AND type = ? AND role = ?`
)
