package sqlstore_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// BenchmarkCount counts what the metrics say of a store with so many threads, each with a row in each table. "longest" is the longest
// step, during which SQLite cannot begin its log anew.
func BenchmarkCount(b *testing.B) {
	ctx := b.Context()
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("threads=%d", n), func(b *testing.B) {
			s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: b.TempDir()})
			check(b, err)
			b.Cleanup(func() { check(b, s.Close()) })
			const writers = 64
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := w; i < n; i += writers {
						if err := plant(ctx, s, i); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.Run("at-once", func(b *testing.B) {
				defer reportProcessor(b)()
				for b.Loop() {
					for _, table := range countedTables {
						_, err := s.RowsOf(ctx, table)
						check(b, err)
					}
				}
			})
			b.Run("in-steps", func(b *testing.B) {
				defer reportProcessor(b)()
				var longest time.Duration
				for b.Loop() {
					c := s.Count()
					for done := false; !done; {
						began := time.Now()
						done, err = c.Step(ctx)
						check(b, err)
						longest = max(longest, time.Since(began))
					}
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			})
		})
	}
}

// reportProcessor returns a function that reports the processor time of each round, which says more than the clock on a busy machine.
func reportProcessor(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op") }
}
