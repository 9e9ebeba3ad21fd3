package sqldb

import (
	"github.com/pressly/goose/v3"

	"github.com/skein-dev/skein/internal/store"
)

// Dialect is what differs between databases. Queries are written once, in package queries, with "?" for parameters.
type Dialect struct {
	Name   string
	Goose  goose.Dialect
	Folder string // of migrations

	// Begin starts a transaction that will write; Snapshot starts one whose reads all see one moment.
	Begin, Snapshot string
	// Pausable is the statement that lets the transaction wait for any time between two others; "" when there is no limit.
	Pausable string
	// Claimable is the query that selects firings to claim.
	Claimable string
	// ExtendFiring is the statement that extends a claim.
	ExtendFiring string
	// Lock is a query that locks a name until the transaction ends, and waits while another transaction has it; "" when there is one
	// writer.
	Lock string
	// Purge removes rows that are not deleted together with the thread's row. Each statement takes the thread's key.
	Purge []string
	// Adopt is run once when the store is opened, after the migrations; nil for none.
	Adopt []string
	// AddChanges moves the changes of the number of living children in a namespace to its counts. Each statement takes the namespace.
	AddChanges []string
	// Objects returns a query for fields of the JSON objects in a text column of a table. cond selects rows of the table, which it calls r.
	Objects func(table, column, cond string, fields []Field) string
	// Mapped returns a query for the rows of another one that have a key of a JSON object of texts in a column, with the key's value as the
	// column mapped. The object, as a text, is the first argument.
	Mapped func(query, column string) string
	// Keys is the query for the keys of a JSON object, which it takes as a text.
	Keys string
	// ManyWriters says that transactions of several writers may commit in another order than they took their numbers.
	ManyWriters bool
	// Search returns the query for a page of messages that have the terms, the best first. conditions, with their arguments, restrict the
	// messages. The query ranks as many matches as ranked says, the newest ones. Its last two parameters are the limit and the offset of the page.
	Search func(terms []store.SearchTerm, conditions string, args []any, ranked int64) (query string, all []any)
	// SearchesByItself says that the database keeps its full-text index up to date.
	SearchesByItself bool
	// Size is the query for the size of the database in bytes.
	Size string
	// EstimateRows is the query for the names and the estimated rows of the tables that grow; "" in a database that does not estimate them.
	EstimateRows string
	// Classify returns what an error of the driver means.
	Classify func(err error) Class
}

// Class is the kind of an error of the database.
type Class int

const (
	// Ordinary means that the statement failed, and the connection is usable.
	Ordinary Class = iota
	// Contended means that others wrote at the same time. Running the transaction again may succeed.
	Contended
	// Unavailable means that the database could not read or write, but may later. The connection is closed.
	Unavailable
	// Broken means that the database is damaged, and a retry does not help. The connection is closed.
	Broken
	// GivenUp means that the caller's context ended during a statement, which also makes the connection unusable.
	GivenUp
)
