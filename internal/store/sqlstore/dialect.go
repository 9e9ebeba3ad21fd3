package sqlstore

import (
	"embed"

	"github.com/pressly/goose/v3"

	"github.com/skein-dev/skein/internal/store"
)

//go:embed migrations
var migrations embed.FS

// dialect is what differs between databases. Queries are written once, in queries.go, with "?" for parameters.
type dialect struct {
	name   string
	goose  goose.Dialect
	folder string // of migrations

	// begin starts a transaction that will write, snapshot one whose reads are of one moment.
	begin, snapshot string
	// claimable selects firings to claim.
	claimable string
	// purge removes what does not go with the thread's row by itself; each has the thread's key as its parameter.
	purge []string
	// adopt is run once when the store is opened, after the migrations; nil for none.
	adopt []string
	// manyWriters: transactions of several writers commit in another order than they take numbers in.
	manyWriters bool
	// search begins the query of messages that have the terms.
	search func(terms []store.SearchTerm) (query string, args []any)
	// searchesByItself: the database keeps its index of texts up to date.
	searchesByItself bool
	// classify tells what an error of the driver means.
	classify func(err error) class
}

// class of an error of the database.
type class int

const (
	// ordinary: the statement failed, the connection is usable.
	ordinary class = iota
	// contended: others wrote at the same time, and the transaction may do better when it is run again.
	contended
	// unavailable: the database could not read or write; it may later. The connection is given up.
	unavailable
	// broken: the database is damaged; trying again does not help. The connection is given up.
	broken
	// givenUp: the caller went away in the middle of a statement, and with him the connection.
	givenUp
)
