package app

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// every does some work at each interval, the first time after one, until ctx ends.
func every(ctx context.Context, c clock.WithTicker, interval time.Duration, work func(context.Context)) error {
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
