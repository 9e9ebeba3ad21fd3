// Package stop ends runs from outside: it stops and cancels them, puts a message in their place, terminates and clears
// their threads, and does the same with the children that they wait for.
package stop

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Definitions is what the service needs of definitions.
type Definitions interface {
	// Rules returns what a Thread object and its agent set for the thread's runs.
	Rules(ctx context.Context, namespace, thread, agent string) (definition.Rules, error)
}

// Children is what the service needs of the objects of children.
type Children interface {
	// Exists reports whether a child is declared and not being deleted. It does not trust a cache.
	Exists(ctx context.Context, parent *store.Thread, reference string) (bool, error)
}

// Runs ends runs, and lets go of the threads whose runs were ended.
type Runs interface {
	// End ends a run that no worker executes. The caller holds the lease of the thread.
	End(ctx context.Context, t *store.Thread, fence *store.Fence, active *activethreads.Active, last *store.Run, how *cancelcause.Stop) error
	// LetGo lets go of a thread after its lease was released.
	LetGo(ctx context.Context, threadID string, active *activethreads.Active)
	// Wake queues a thread at once, whatever its last run waited for.
	Wake(threadID string)
}

// Options of a Service.
type Options struct {
	Store       store.Store
	Threads     *thread.Service
	Definitions Definitions
	Children    Children
	Runs        Runs
	Active      *activethreads.Threads
	Leases      *schedule.Leases
	PostRun     *postrun.Worker
	Log         logr.Logger
	// Owner names this replica in leases.
	Owner string
	// ContextMessages is how many of the newest messages of a conversation are loaded.
	ContextMessages int
	// Now returns the time in microseconds since 1970.
	Now func() int64
	// Fault marks a point around a durable write, for crash tests.
	Fault func(point string)
}

// Service ends runs. It is safe for concurrent use.
type Service struct{ opts Options }

// New returns a service.
func New(o Options) *Service { return &Service{opts: o} }

// fault marks a point around a durable write or an outside call, for crash tests.
func (s *Service) fault(point string) { s.opts.Fault(point) }
