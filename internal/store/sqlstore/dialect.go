package sqlstore

import (
	"database/sql"
	"embed"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// dialect is what differs between databases. Queries are written once, in queries.go, with "?" for parameters.
type dialect struct {
	name   string
	goose  goose.Dialect
	folder string // of migrations

	// rebind writes a query's parameters as the database wants them.
	rebind func(query string) string
	// begin starts a transaction that will write.
	begin string
	// setup is run on every new connection, by the kind of use.
	setup func(c *sql.Conn, writes bool) error
	// adopt is run once when the store is opened, after the migrations; nil for none.
	adopt []string
	// manyWriters: transactions of several writers commit in another order than they take numbers in.
	manyWriters bool
	// classify tells what an error of the driver means.
	classify func(err error) class
}

// class of an error of the database.
type class int

const (
	// ordinary: the statement failed, the transaction and the connection are usable.
	ordinary class = iota
	// unavailable: the database could not read or write; it may later. The connection is given up.
	unavailable
	// broken: the database is damaged; trying again does not help. The connection is given up.
	broken
)
