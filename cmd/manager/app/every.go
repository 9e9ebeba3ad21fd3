package app

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// firstAfter is when work at a longer interval is done for the first time. A replica may lead for less than that interval each time, and
// what a crash has left should not wait for it.
const firstAfter = time.Minute

// every calls work at each interval until ctx ends. It first does so after one interval, or after firstAfter if that is shorter.
func every(ctx context.Context, c clock.WithTicker, interval time.Duration, work func(context.Context)) error {
	if interval > firstAfter {
		first := c.NewTimer(firstAfter)
		defer first.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-first.C():
			work(ctx)
		}
	}
	ticker := c.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			work(ctx)
		}
	}
}
