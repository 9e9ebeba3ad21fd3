package queries

import (
	"math"
	"strings"
)

// WaitingItems counts the inbox items that wait, and says when the oldest of them was added. An item waits when it is not delayed and its thread
// has work: no replica takes the items of a thread that is parked, retained or being deleted, for however long they stay. The age leaves out calls of
// hooks: that of after_thread_created waits until the agent exists, which the condition of the Thread reports already. Messages to such a Thread count.
//
// It reads the index of threads with work and the items of these, so that neither idle threads nor the inboxes of retained ones cost anything. SQLite
// would begin with all items; a cross join keeps the order. PostgreSQL chooses by its own estimates.
const WaitingItems = `SELECT COUNT(*), COALESCE(MIN(CASE WHEN i.kind <> 'hook' THEN i.created_at END), 0)
	FROM thread_head h CROSS JOIN inbox i
	WHERE h.work_since IS NOT NULL AND i.thread = h.thread AND i.held_until = 0`

// Counted is a table that grows with use. Its rows are counted in slices, in the order of an index that has little of what the rows have. The
// two columns of the key are the first of that index, and no two rows have the same.
type Counted struct {
	Table string
	Key   [2]string
	// Before is a key before all others; it has the types of the columns.
	Before [2]any
}

// CountedTables are the tables that grow with use, but for contents, which ContentsSlice counts.
var CountedTables = []Counted{
	{"thread", [2]string{"id", "key"}, [2]any{"", first}},
	{"message", [2]string{"id", "thread"}, [2]any{"", first}},
	{"log", [2]string{"thread", "seq"}, [2]any{first, first}},
	{"run", [2]string{"thread", "id"}, [2]any{first, ""}},
	{"inbox", [2]string{"thread", "seq"}, [2]any{first, first}},
	{"inbox_key", [2]string{"thread", "key"}, [2]any{first, ""}},
	{"file", [2]string{"thread", "path"}, [2]any{first, ""}},
	{"kv", [2]string{"thread", "key"}, [2]any{first, ""}},
	{"effect_firing", [2]string{"effect_id", "due"}, [2]any{"", first}},
	{"idempotency", [2]string{"thread", "key"}, [2]any{first, ""}},
	{"embedding", [2]string{"thread", "seq"}, [2]any{first, first}},
}

const first = int64(math.MinInt64)

// These queries compare one column with the key, and not the two of them as a pair: SQLite would compare a pair again for each row.

// Within returns the query for how many rows have the first column of a key and are behind it, and the second column of the last of them. It takes
// the key, and how many rows to count.
func (c Counted) Within() string {
	last := "''"
	if _, number := c.Before[1].(int64); number {
		last = "0"
	}
	return `SELECT COUNT(*), COALESCE(MAX(` + c.Key[1] + `), ` + last + `) FROM (SELECT ` + c.Key[1] + ` FROM ` + c.Table + ` WHERE ` + c.Key[0] + ` = ? AND ` + c.Key[1] + ` > ? ORDER BY ` + c.Key[1] + ` LIMIT ?) AS slice`
}

// EndOfSlice returns the query for the key of the row that is so many rows and one behind all with the first column of a key. It takes
// that column, and the number.
func (c Counted) EndOfSlice() string {
	key := c.Key[0] + ", " + c.Key[1]
	return `SELECT ` + key + ` FROM ` + c.Table + ` WHERE ` + c.Key[0] + ` > ? ORDER BY ` + key + ` LIMIT 1 OFFSET ?`
}

// Rest returns the query for the number of rows behind all with the first column of a key.
func (c Counted) Rest() string {
	return `SELECT COUNT(*) FROM ` + c.Table + ` WHERE ` + c.Key[0] + ` > ?`
}

// ContentsSlice counts contents of files behind a digest, and sums up those that are in the bucket. It takes the digest and how many to count, and
// returns the last digest.
const ContentsSlice = `SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN size >= 0 THEN size END), 0) AS BIGINT), COALESCE(MAX(digest), '')
	FROM (SELECT digest, size FROM contents WHERE digest > ? ORDER BY digest LIMIT ?) AS slice`

// EstimateTables returns the query for the name of each of CountedTables and PostgreSQL's estimate of the number of its rows.
func EstimateTables() string {
	names := make([]string, 0, len(CountedTables))
	for _, c := range CountedTables {
		names = append(names, c.Table)
	}
	return `SELECT relname::text, GREATEST(reltuples, 0)::bigint FROM pg_class
		WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND relname IN ('` + strings.Join(names, `', '`) + `')`
}
