package sqldb

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/ownclock"
)

// Clock is the database's clock, so that leases mean the same to replicas whose nodes' clocks differ. The
// offset is read now and then and added to the process's own clock, so reading the time costs a transaction nothing.
type Clock struct {
	ahead atomic.Int64 // offset to this process's clock, in nanoseconds
}

var _ clock.PassiveClock = (*Clock)(nil)

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time { return ownclock.Now().Add(time.Duration(c.ahead.Load())) }

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Read measures the offset over a connection. It assumes that the answer was made halfway between question and receipt.
func (c *Clock) Read(ctx context.Context, db *pgx.Conn) error {
	var micros int64
	asked := ownclock.Now()
	if err := db.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&micros); err != nil {
		return err
	}
	took := ownclock.Now().Sub(asked)
	c.ahead.Store(int64(time.UnixMicro(micros).Sub(asked.Add(took / 2))))
	return nil
}
