package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/thread"
)

// expireEvery is the interval of the search for threads that have been idle for too long (THR-07), and so the maximum
// delay of an expiry.
const expireEvery = time.Second

// expirer destroys the conversations of such threads.
type expirer struct {
	threads *thread.Service
	clock   clock.WithTicker
	log     logr.Logger
}

// Start searches until ctx ends.
func (e *expirer) Start(ctx context.Context) error {
	ticker := e.clock.NewTicker(expireEvery)
	defer ticker.Stop()
	for {
		destroyed, err := e.threads.Expire(ctx)
		if err != nil && ctx.Err() == nil {
			e.log.Error(err, "destroy the conversations of idle threads; the next look tries again", "destroyed", destroyed)
		} else if destroyed > 0 {
			e.log.Info("destroyed conversations of idle threads", "count", destroyed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// NeedLeaderElection returns true: one replica is enough, though more would do no harm.
func (*expirer) NeedLeaderElection() bool { return true }
