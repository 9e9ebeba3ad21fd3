// Package executions makes executions of threads, with everything that their tools may use: children, effects, other threads,
// memory. It also makes the calls of tools and of code that come from outside of runs.
package executions

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/engine/memory"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Limits are those that tools keep to. engine.Limits says what each means.
type Limits struct {
	Depth, Children, NamespaceChildren, Handoffs, HookDepth int
}

// Options of a Service.
type Options struct {
	Threads     *thread.Service
	Store       store.Store
	Definitions ports.Definitions
	Children    ports.Children
	Effects     ports.Effects
	Env         *codeexec.Environment
	Hooks       *hooks.Service
	Active      *activethreads.Threads
	Memory      *memory.Service
	Related     *related.Service // nil where no threads can be made
	Clock       clock.WithTickerAndDelayedExecution
	Log         logr.Logger
	Limits      Limits
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// Terminate terminates a thread with its descendants.
	Terminate func(ctx context.Context, threadID, reason string) error
	// Now returns the time in microseconds since 1970.
	Now func() int64
	// Fault marks a point around an outside call, for crash tests.
	Fault func(point string)
}

// Service makes executions. It is safe for concurrent use.
type Service struct{ opts Options }

// New returns a service.
func New(o Options) *Service { return &Service{opts: o} }

// fault marks a point around a durable write or an outside call, for crash tests.
func (s *Service) fault(point string) { s.opts.Fault(point) }
