package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/thread"
)

// sweepEvery is how often contents of files that nothing refers to are looked for. They are rare: what a
// crash between writing bytes and writing their row leaves behind (DESIGN.md section 5).
const sweepEvery = time.Hour

// sweeper removes such contents from the bucket.
type sweeper struct {
	threads *thread.Service
	clock   clock.WithTicker
	log     logr.Logger
}

// Start sweeps until ctx ends.
func (s *sweeper) Start(ctx context.Context) error {
	ticker := s.clock.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if _, err := s.threads.SweepSession(ctx); err != nil && ctx.Err() == nil {
			s.log.Error(err, "sweep expired values and old lifecycle events; the next sweep tries again")
		}
		removed, err := s.threads.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error(err, "sweep the contents of files; the next sweep tries again", "removed", removed)
		} else if removed > 0 {
			s.log.Info("removed contents of files that nothing referred to", "count", removed)
		}
		if _, err := s.threads.SweepKeys(ctx); err != nil && ctx.Err() == nil {
			s.log.Error(err, "forget old idempotency keys; the next sweep tries again")
		}
	}
}

// NeedLeaderElection: one replica is enough.
func (*sweeper) NeedLeaderElection() bool { return true }

// indexEvery is how often what was said is brought into the index of texts, so that a search need not wait for it.
const indexEvery = 10 * time.Second

// indexer brings new messages into the index of texts.
type indexer struct {
	threads *thread.Service
	clock   clock.WithTicker
	log     logr.Logger
}

// Start indexes until ctx ends.
func (i *indexer) Start(ctx context.Context) error {
	ticker := i.clock.NewTicker(indexEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := i.threads.Store().IndexMessages(ctx); err != nil && ctx.Err() == nil {
			i.log.Error(err, "index messages; the next search tries again")
		}
	}
}

// NeedLeaderElection: one replica is enough.
func (*indexer) NeedLeaderElection() bool { return true }
