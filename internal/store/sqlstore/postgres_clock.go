package sqlstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/utils/clock"
)

// databaseClock is the database's clock, so that the leases of replicas whose nodes' clocks differ mean the
// same to all. It is read now and then, and carried on by this process's own, which costs a transaction nothing.
type databaseClock struct {
	mu    sync.Mutex   // of who reads it
	known bool         // it was read
	ahead atomic.Int64 // of this process's clock, in nanoseconds
}

var _ clock.PassiveClock = (*databaseClock)(nil)

// Now implements clock.PassiveClock.
func (c *databaseClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Since implements clock.PassiveClock.
func (c *databaseClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// read compares the clocks over a connection.
func (c *databaseClock) read(ctx context.Context, db *pgx.Conn) error {
	var micros int64
	asked := time.Now()
	if err := db.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&micros); err != nil {
		return err
	}
	c.compared(time.UnixMicro(micros), asked, time.Now())
	return nil
}

// compared takes in what the database's clock said between question and receipt: most likely halfway. A slow answer says little, and
// an earlier one may have been quick: the clock moves no further than it must to agree with this one.
func (c *databaseClock) compared(said, asked, received time.Time) {
	least, most := said.Sub(received), said.Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := least + (most-least)/2
	if c.known {
		ahead = min(max(time.Duration(c.ahead.Load()), least), most)
	}
	c.known = true
	c.ahead.Store(int64(ahead))
}
