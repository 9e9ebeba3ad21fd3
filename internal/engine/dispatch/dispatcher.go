// Package dispatch gives threads that have work to workers, with their leases, and lets go of them. It finds work through the
// notifications of the store, and where those may have been lost, by searching.
package dispatch

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/compat"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/quota"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
)

// Options of a Dispatcher.
type Options struct {
	Store   store.Store
	Compat  *compat.Store
	Queue   *schedule.Queue
	Leases  *schedule.Leases
	Active  *activethreads.Threads
	Stops   *stop.Service
	Quotas  *quota.Quotas
	Effects *effects.Worker
	PostRun *postrun.Worker
	Recent  *transcript.Cache
	Clock   clock.WithTicker
	Log     logr.Logger
	// Owner names this replica in leases.
	Owner string
	// LeaseTTL and SweepInterval are those of the engine.
	LeaseTTL, SweepInterval time.Duration
	// Next does the next piece of work of a thread, such as a stop or a run. more reports whether to call it again under the same lease.
	// first says that this is the first call under the lease.
	Next func(ctx context.Context, threadID string, fence *store.Fence, active *activethreads.Active, first bool) (more bool, err error)
	// Interrupted returns an error when this replica prepares to end and begins nothing.
	Interrupted func() error
	// Fault marks a point, for crash tests.
	Fault func(point string)
}

// Dispatcher gives threads to workers. It is safe for concurrent use.
type Dispatcher struct {
	opts Options
	// stopped queues threads that another replica may have terminated, purged or stopped, as a notification says.
	// observed queues all threads from time to time, since a notification can be lost.
	stopped, observed workqueue.TypedInterface[string]
	elsewhere         elsewhere
	// refused are threads that the search for lost work leaves out for a while.
	refused  *schedule.Refused
	sweepNow chan struct{}
}

// New returns a dispatcher.
func New(o Options) *Dispatcher {
	return &Dispatcher{
		opts: o, elsewhere: newElsewhere(), refused: schedule.NewRefused(o.Clock, refusedSweeps*o.SweepInterval), stopped: workqueue.NewTyped[string](), observed: workqueue.NewTyped[string](), sweepNow: make(chan struct{}, 1),
	}
}

// Wake queues a thread that may have work.
func (d *Dispatcher) Wake(threadID string) {
	d.opts.Queue.ForgetWait(threadID)
	d.opts.Queue.Delay(threadID, false)
	d.opts.Queue.Forget(threadID)
	d.opts.Queue.Add(threadID)
}

// WakeRefused queues a thread that could not run when it was tried last, or that a worker has. The worker may have read its definitions
// before they were ready.
func (d *Dispatcher) WakeRefused(threadID string) {
	if d.refused.Has(threadID) || d.opts.Active.IsActive(threadID) {
		d.Wake(threadID)
	}
}

func (d *Dispatcher) now() int64 { return d.opts.Clock.Now().UnixMicro() }

// fault marks a point around a durable write or an outside call, for crash tests.
func (d *Dispatcher) fault(point string) { d.opts.Fault(point) }
