package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/thread"
)

// sweepEvery is the interval of sweeps for what has expired: values, lifecycle events, messages that were kept for forks, and contents of
// files that nothing refers to. Such contents are rare: a crash leaves them behind between writing bytes and
// writing their row.
const sweepEvery = time.Hour

// defaultRetainedTTL is Options.RetainedTTL unless it is set.
const defaultRetainedTTL = 90 * 24 * time.Hour

// sweeper removes it.
type sweeper struct {
	threads *thread.Service
	// retained is how long data without an object is kept; 0 for ever.
	retained time.Duration
	clock    clock.WithTicker
	log      logr.Logger
}

// Start sweeps until ctx ends.
func (s *sweeper) Start(ctx context.Context) error {
	return every(ctx, s.clock, sweepEvery, s.sweep)
}

func (s *sweeper) sweep(ctx context.Context) {
	if _, err := s.threads.SweepSession(ctx); err != nil && ctx.Err() == nil {
		s.log.Error(err, "sweep expired values and old lifecycle events; the next sweep tries again")
	}
	purged, err := s.threads.PurgeOldRetained(ctx, s.retained)
	swept.WithLabelValues("retained_threads").Add(float64(purged))
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "purge old data of deleted Threads; the next sweep tries again", "purged", purged)
	} else if purged > 0 {
		s.log.Info("purged data of Threads that were deleted long ago", "count", purged)
	}
	remnants, err := s.threads.SweepRemnants(ctx)
	swept.WithLabelValues("remnants").Add(float64(remnants))
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "sweep messages that no fork reads any more; the next sweep tries again")
	}
	removed, err := s.threads.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "sweep the contents of files; the next sweep tries again", "removed", removed)
	} else if removed > 0 {
		swept.WithLabelValues("objects").Add(float64(removed))
		s.log.Info("removed contents of files that nothing referred to", "count", removed)
	}
}

// NeedLeaderElection returns true: one replica is enough.
func (*sweeper) NeedLeaderElection() bool { return true }
