// Package request makes requests to the models of sides: what a model reads of the conversation, the system prompt, images, and the
// provider's own conversation that a request continues. It also notes what the answers say of themselves.
package request

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/thread"
)

// Definitions is what a Maker needs of definitions.
type Definitions interface {
	// PromptText returns the current text of a prompt, with the prompts that it includes.
	PromptText(ctx context.Context, namespace, name string) (*prompt.Template, error)
}

// Options of a Maker.
type Options struct {
	Threads     *thread.Service
	Definitions Definitions
	Models      model.Factory
	Log         *logr.Logger // of the run
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// State returns the thread's state.
	State func(ctx context.Context) (*thread.State, error)
}

// Maker makes the requests of one run. It belongs to the goroutine of the run.
type Maker struct {
	opts Options
	role *role.Role
	// asked reports that a request was made, so the definitions may be out of date.
	asked bool
	// leftOut and shortened are the numbers of messages that the last request did not have, and of results of which it had only a
	// part, to fit the model's context window.
	leftOut, shortened int
}

// NewMaker returns a Maker for a run in which r says who acts.
func NewMaker(o Options, r *role.Role) *Maker { return &Maker{opts: o, role: r} }

// Client returns a client for a model of the agent.
func (k *Maker) Client(m *definition.Model) (model.Client, error) {
	return k.opts.Models.Client(m.Config(k.role.Agent.Namespace))
}
