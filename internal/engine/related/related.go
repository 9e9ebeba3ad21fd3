// Package related does what leads from one thread to another that is not its child: reading the other's conversation
// (REL-04), and handing the context of a conversation to a new thread (REL-03).
package related

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Definitions resolves agents.
type Definitions interface {
	Agent(ctx context.Context, namespace, name string) (*definition.Agent, error)
}

// Objects declares the Thread objects of threads that the engine starts.
type Objects interface {
	// Name returns the name of the Thread object that a cause within a thread leads to.
	Name(origin *store.Thread, cause string) string
	// Declare creates the object of a stored thread, which then adopts it. A repeat changes nothing. The error is a
	// *thread.InvalidError when the cluster refuses the object, so that no repeat would help.
	Declare(ctx context.Context, t *store.Thread, cause string) error
}

// Options of a Service. All are required.
type Options struct {
	Threads     *thread.Service
	Definitions Definitions
	Models      model.Factory
	Objects     Objects
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// Usage returns what one call of a model used.
	Usage func(m *definition.Model, u *model.Usage) store.RunUsage
	// FirstItems returns the first inbox items of a new thread.
	FirstItems func(ctx context.Context, namespace, agent string) []store.InboxItem
	// Accepts returns an error if an agent cannot run a thread without arguments.
	Accepts func(a *definition.Agent) error
	// Fault is called around durable writes and outside calls.
	Fault func(point string)
	Clock clock.WithTicker
	Log   logr.Logger
}

// Service reads threads and hands their context on. It is safe for concurrent use.
type Service struct {
	opts  Options
	store store.Store
	// undeclared tells Run that a new thread did not get its object.
	undeclared chan struct{}
}

// New returns a service.
func New(o Options) *Service {
	return &Service{opts: o, store: o.Threads.Store(), undeclared: make(chan struct{}, 1)}
}

// fault marks a point around a durable write or an outside call, for crash tests.
func (s *Service) fault(point string) { s.opts.Fault(point) }

func invalid(field, message string) error {
	return &thread.InvalidError{Field: field, Message: message}
}
