package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/skein-dev/skein/internal/thread"
)

// removeEvery is the interval of the search for removals of messages that a crash has interrupted.
const removeEvery = 5 * time.Second

// swept counts what the sweeps of the leader removed.
var swept = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "skein_swept_total",
	Help: "What sweeps removed from the store and the bucket, by what it was.",
}, []string{"what"})

func init() { metrics.Registry.MustRegister(swept) }

// remover finishes such removals.
type remover struct {
	threads *thread.Service
	clock   clock.WithTicker
	log     logr.Logger
}

// Start removes until ctx ends.
func (r *remover) Start(ctx context.Context) error {
	return every(ctx, r.clock, removeEvery, r.remove)
}

func (r *remover) remove(ctx context.Context) {
	finished, err := r.threads.FinishRemovals(ctx)
	swept.WithLabelValues("interrupted_removals").Add(float64(finished))
	if err != nil && ctx.Err() == nil {
		r.log.Error(err, "remove messages of destroyed and truncated conversations; the next look tries again")
	}
}

// NeedLeaderElection returns true: one replica is enough, though more would do no harm.
func (*remover) NeedLeaderElection() bool { return true }

// sweepOldEvery is the interval of sweeps for rows that many threads write all the time.
const sweepOldEvery = 5 * time.Minute

// oldRowSweeper removes such rows when they are old enough: the pieces of answers, and keys that recognise repeats.
type oldRowSweeper struct {
	threads *thread.Service
	clock   clock.WithTicker
	log     logr.Logger
}

// Start sweeps until ctx ends.
func (a *oldRowSweeper) Start(ctx context.Context) error {
	return every(ctx, a.clock, sweepOldEvery, a.sweep)
}

// sweep removes the old rows of each kind, and counts them. What cannot be removed now is removed by a later sweep.
func (a *oldRowSweeper) sweep(ctx context.Context) {
	for what, sweep := range map[string]func(context.Context) (int64, error){
		"deltas": a.threads.SweepDeltas, "inbox_keys": a.threads.SweepInboxKeys, "idempotency_keys": a.threads.SweepKeys,
		"deleted_objects": a.threads.SweepDeleted,
	} {
		removed, err := sweep(ctx)
		swept.WithLabelValues(what).Add(float64(removed))
		if err != nil && ctx.Err() == nil {
			a.log.Error(err, "sweep old rows; the next sweep tries again", "what", what)
		}
	}
}

// NeedLeaderElection returns true: one replica is enough, though more would do no harm.
func (*oldRowSweeper) NeedLeaderElection() bool { return true }
