// Package hooks calls the hooks of agents (HOK-01). It calls filters and changes at once, and hooks about past events through the inbox
// of the thread. A Service serves all threads of a replica, and a Run the hooks of one run.
package hooks

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// Definitions resolves the hooks of agents.
type Definitions interface {
	// Agent resolves an agent with its hooks.
	Agent(ctx context.Context, namespace, name string) (*definition.Agent, error)
	// Hooks resolves only the hooks of an agent, as they apply while no side has the turn.
	Hooks(ctx context.Context, namespace, agent string) (map[skeinv1.HookName]*definition.Hook, error)
}

// Executions opens executions for hooks that are called apart from a run.
type Executions interface {
	// AtRest returns an execution for the hooks of a thread without a run. The caller holds the lease.
	AtRest(ctx context.Context, t *store.Thread, fence *store.Fence, agent *definition.Agent) (*codeexec.Execution, error)
	// WithExternal calls do with an execution for a write from outside of a run, and then saves the state that code has changed.
	WithExternal(ctx context.Context, t *store.Thread, do func(*codeexec.Execution) ([]store.Op, error)) ([]store.Op, error)
}

// Options of a Service. All are required.
type Options struct {
	Store       store.Store
	Definitions Definitions
	Executions  Executions
	Log         logr.Logger
	// Now returns the time in microseconds since 1970.
	Now func() int64
	// Expect sets a timer for the time at which delayed hooks are due.
	Expect func(at int64)
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// Fault is called around durable writes and calls of hooks.
	Fault func(point string)
	// Depth is the longest chain of hooks in which each causes the next.
	Depth int
	// Tries is how often a call of a hook for which there is no sandbox is tried, and Retry is the time until the second try.
	Tries int
	Retry time.Duration
}

// Service calls the hooks of all threads of this replica. It is safe for concurrent use.
type Service struct{ Options }

// New returns a service.
func New(o Options) *Service { return &Service{Options: o} }

// fault marks a point around a durable write or a call, for crash tests.
func (s *Service) fault(point string) { s.Fault(point) }

// callerFor returns what calls the hooks in an execution.
func (s *Service) callerFor(x *codeexec.Execution) *Caller { return &Caller{service: s, x: x} }

// Caller calls hooks in an execution.
type Caller struct {
	service *Service
	x       *codeexec.Execution
}
