package store

import "context"

// StatisticsStore says how large the store is, and what waits in it, over all threads.
type StatisticsStore interface {
	// Statistics reads what waits, and the size of the database. It is cheap: it reads the items that wait, and
	// the heads of threads that have work.
	Statistics(ctx context.Context) (*Statistics, error)
	// Count begins a count of what grows with use.
	Count() Count
}

// Count counts what grows with use, in steps. Each step is a transaction of some milliseconds, however large the store is: SQLite cannot
// start its write-ahead log anew while a transaction reads. What is written between two steps may be counted or not.
type Count interface {
	// Step does the next step, and reports whether it was the last. After an error, call it again to go on.
	Step(ctx context.Context) (done bool, err error)
	// Rows returns how many rows the tables have that grow with use, once the last step is done. PostgreSQL estimates all but "contents".
	Rows() map[string]int64
	// ContentsBytes returns how many bytes the contents of files have that the bucket holds, once the last step is done.
	ContentsBytes() int64
}

// Statistics are what a StatisticsStore knows at a moment.
type Statistics struct {
	// InboxItems is how many items wait in inboxes: those that are not delayed, of threads that are not parked, retained or being deleted.
	// OldestItem is when the oldest of them was added, in microseconds; 0 when there is none. Calls of hooks count as items, but not for
	// OldestItem: that of after_thread_created waits for as long as the agent does not exist.
	InboxItems, OldestItem int64
	// Bytes is the size of the database.
	Bytes int64
	// Now is the time of the reading, by the clock of the store.
	Now int64
}
