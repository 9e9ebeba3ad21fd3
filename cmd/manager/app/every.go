package app

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// every calls work at each interval, first after one interval, until ctx ends.
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
