package txn

import (
	"context"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// DB is what every part of the store reads and writes with.
type DB struct {
	Dialect *sqldb.Dialect
	clock   clock.PassiveClock
	Writer  *Writers
	Readers *sqldb.Readers
	quotas  atomic.Pointer[func(namespace string) store.Quotas]
}

// NewDB returns a db without writers and readers. A nil clock stands for the real one.
func NewDB(d *sqldb.Dialect, c clock.PassiveClock) *DB {
	if c == nil {
		c = ownclock.Clock{}
	}
	return &DB{Dialect: d, clock: c}
}

// Now returns the present time in microseconds.
func (d *DB) Now() int64 { return d.clock.Now().UnixMicro() }

// LimitNamespaces sets what returns the quotas of a namespace.
func (d *DB) LimitNamespaces(of func(namespace string) store.Quotas) { d.quotas.Store(&of) }

// quotasOf returns the quotas of a namespace.
func (d *DB) quotasOf(namespace string) store.Quotas {
	if of := d.quotas.Load(); of != nil {
		return (*of)(namespace)
	}
	return nil
}

// OfThread calls fn with the key of a thread, and a connection on which all reads see one moment. It returns
// store.ErrNotFound when the thread does not exist.
func (d *DB) OfThread(ctx context.Context, threadID string, fn func(c *sqldb.Conn, key int64) error) error {
	return d.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		var key int64
		if err := c.Row(ctx, queries.ThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		return fn(c, key)
	})
}
