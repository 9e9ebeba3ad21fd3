package sqlstore

import (
	"github.com/pressly/goose/v3"

	"github.com/skein-dev/skein/internal/store"
)

// dialect is what differs between databases. Queries are written once, in queries.go, with "?" for parameters.
type dialect struct {
	name   string
	goose  goose.Dialect
	folder string // of migrations

	// begin starts a transaction that will write; snapshot starts one whose reads all see one moment.
	begin, snapshot string
	// claimable is the query that selects firings to claim.
	claimable string
	// purge removes rows that are not deleted together with the thread's row. Each statement takes the thread's key.
	purge []string
	// adopt is run once when the store is opened, after the migrations; nil for none.
	adopt []string
	// manyWriters says that transactions of several writers may commit in another order than they took their numbers.
	manyWriters bool
	// search returns the beginning of the query for messages that have the terms.
	search func(terms []store.SearchTerm) (query string, args []any)
	// searchesByItself says that the database keeps its full-text index up to date.
	searchesByItself bool
	// classify returns what an error of the driver means.
	classify func(err error) class
}

// class is the kind of an error of the database.
type class int

const (
	// ordinary: the statement failed, and the connection is usable.
	ordinary class = iota
	// contended: others wrote at the same time. Running the transaction again may succeed.
	contended
	// unavailable: the database could not read or write, but may later. The connection is closed.
	unavailable
	// broken: the database is damaged, and a retry does not help. The connection is closed.
	broken
	// givenUp: the caller's context ended during a statement, which also makes the connection unusable.
	givenUp
)
