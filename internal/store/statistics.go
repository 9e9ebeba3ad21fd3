package store

import "context"

// StatisticsStore says how large the store is, and what waits in it, over all threads.
type StatisticsStore interface {
	// Statistics reads what waits, and the size of the database. It is cheap: it reads as many rows as items wait.
	Statistics(ctx context.Context) (*Statistics, error)
	// TableRows returns how many rows the tables have that grow with use. PostgreSQL estimates them; SQLite counts, which reads
	// the smallest index of each.
	TableRows(ctx context.Context) (map[string]int64, error)
	// ContentsBytes returns how many bytes the contents of files have that the bucket holds. It reads a row of each.
	ContentsBytes(ctx context.Context) (int64, error)
}

// Statistics are what a StatisticsStore knows at a moment.
type Statistics struct {
	// InboxItems is how many items wait in inboxes and are not delayed. OldestItem is when the oldest of them was added, in
	// microseconds; 0 when there is none.
	InboxItems, OldestItem int64
	// Bytes is the size of the database.
	Bytes int64
	// Now is the time of the reading, by the clock of the store.
	Now int64
}
