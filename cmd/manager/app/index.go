package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/thread"
)

// indexEvery is the interval at which new messages are added to the text index, so that a search need not wait for
// that.
const indexEvery = 10 * time.Second

// indexer adds new messages to the text index.
type indexer struct {
	threads *thread.Service
	clock   clock.WithTicker
	log     logr.Logger
}

// Start indexes until ctx ends.
func (i *indexer) Start(ctx context.Context) error {
	return every(ctx, i.clock, indexEvery, func(ctx context.Context) {
		if err := i.threads.Store().IndexMessages(ctx); err != nil && ctx.Err() == nil {
			i.log.Error(err, "index messages; the next search tries again")
		}
	})
}

// NeedLeaderElection returns true: one replica is enough.
func (*indexer) NeedLeaderElection() bool { return true }
