// Package ownclock is the clock of this process. Everything that decides by the time of day reads it here, so that tests can move the
// clock of one replica.
package ownclock

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ahead is how far the clock is ahead of the machine's, in nanoseconds. It is 0 unless a test moves it.
var ahead atomic.Int64

// Now returns the time of day.
func Now() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }

// Until returns the time until t.
func Until(t time.Time) time.Duration { return t.Sub(Now()) }

// Clock is the clock of this process. Its timers and tickers measure durations, which no move of the clock changes. Since includes the
// move when its argument is from before it. Go's own clock would not, because it is monotonic.
type Clock struct{ clock.RealClock }

var (
	_ clock.WithTickerAndDelayedExecution = Clock{}
	_ clock.WithDelayedExecution          = Clock{}
)

// Now implements clock.PassiveClock.
func (Clock) Now() time.Time { return Now() }

// Since implements clock.PassiveClock.
func (Clock) Since(t time.Time) time.Duration { return Now().Sub(t) }

// MostAhead bounds how far a clock can be moved, forward and back.
const MostAhead = 24 * time.Hour

// look is how often the file is read that says how far the clock is moved.
const look = 50 * time.Millisecond

// Track moves the clock by the duration in a file, such as -40s, whenever that changes, until ctx ends. It returns an error when
// the file has no duration. If it has none later, the clock stays where it is. Only tests call it.
func Track(ctx context.Context, file string) error {
	by, err := read(file)
	if err != nil {
		return err
	}
	ahead.Store(int64(by))
	go func() {
		ticker := time.NewTicker(look)
		defer ticker.Stop()
		defer ahead.Store(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if by, err := read(file); err == nil {
				ahead.Store(int64(by))
			}
		}
	}()
	return nil
}

func read(file string) (time.Duration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	by, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err == nil && by.Abs() > MostAhead {
		err = fmt.Errorf("%s is more than %s", by, MostAhead)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: write how far the clock is to be ahead, such as -40s: %w", file, err)
	}
	return by, nil
}
