package queries

import "strings"

// WaitingItems counts the inbox items that wait and are not delayed, and finds the oldest.
const WaitingItems = `SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM inbox WHERE held_until = 0`

// GrowingTables are the tables that grow with use.
var GrowingTables = []string{"thread", "message", "log", "run", "inbox", "inbox_key", "file", "contents", "kv", "effect_firing", "idempotency", "embedding"}

// CountTables returns the query for the name and the number of rows of each of GrowingTables.
func CountTables() string {
	selects := make([]string, 0, len(GrowingTables))
	for _, name := range GrowingTables {
		selects = append(selects, `SELECT '`+name+`', COUNT(*) FROM `+name)
	}
	return strings.Join(selects, " UNION ALL ")
}

// EstimateTables returns the query for the name of each of GrowingTables and PostgreSQL's estimate of the number of its rows.
func EstimateTables() string {
	return `SELECT relname::text, GREATEST(reltuples, 0)::bigint FROM pg_class
		WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND relname IN ('` + strings.Join(GrowingTables, `', '`) + `')`
}

// ContentsBytes sums up the contents of files that are in the bucket. It reads a row of each.
const ContentsBytes = `SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM contents WHERE size >= 0`
