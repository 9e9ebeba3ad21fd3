package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/thread"
)

// sweepOwnersEvery is the interval of the search for rows of namespaces that are gone, and for rows whose namespace is not known.
const sweepOwnersEvery = 10 * time.Minute

// ownerSweeper removes the ones and finds out about the others.
type ownerSweeper struct {
	threads *thread.Service
	clock   clock.WithTicker
	log     logr.Logger
}

// Start sweeps at once, since the release before leaves rows whose namespace is not known, and then until ctx ends.
func (s *ownerSweeper) Start(ctx context.Context) error {
	s.sweep(ctx)
	return every(ctx, s.clock, sweepOwnersEvery, s.sweep)
}

func (s *ownerSweeper) sweep(ctx context.Context) {
	removed, err := s.threads.ReconcileOwners(ctx)
	swept.WithLabelValues("namespaces").Add(float64(removed))
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "remove what deleted namespaces have left; the next look tries again", "removed", removed)
	} else if removed > 0 {
		s.log.Info("removed key-values and sums of usage of deleted namespaces", "count", removed)
	}
}

// NeedLeaderElection returns true: one replica is enough, though more would do no harm.
func (*ownerSweeper) NeedLeaderElection() bool { return true }
