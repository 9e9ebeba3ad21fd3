package txn

import (
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// DB is what every part of the store reads and writes with.
type DB struct {
	Dialect *sqldb.Dialect
	clock   clock.PassiveClock
	Writer  *Writers
	Readers *sqldb.Readers
}

// NewDB returns a db without writers and readers. A nil clock stands for the real one.
func NewDB(d *sqldb.Dialect, c clock.PassiveClock) *DB {
	if c == nil {
		c = clock.RealClock{}
	}
	return &DB{Dialect: d, clock: c}
}

// Now returns the present time in microseconds.
func (d *DB) Now() int64 { return d.clock.Now().UnixMicro() }
