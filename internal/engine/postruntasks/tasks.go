// Package postruntasks has the tasks that follow runs (RUN-07, docs/adr/0029-after-a-run.md): vectors of what was said, for the
// agent's memory, and a title for the thread. The record of what a run used is not a task: it is written with the run's
// end.
package postruntasks

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// Names of the tasks, in logs and in usage records.
const (
	TaskEmbeddings = "embeddings"
	TaskTitle      = "title"
)

// Options of Tasks. All but Redact are required.
type Options struct {
	Store       store.Store
	Definitions ports.Definitions
	Models      model.Factory
	// Redact removes the secrets of a namespace from a text. The default returns the text unchanged.
	Redact func(namespace, text string) string
	// Memory is what the answers of models are drawn from. nil is without limit.
	Memory *membudget.Budget
}

// Tasks returns the tasks for engine.Options.PostRun.
func Tasks(o Options) []postrun.Task {
	if o.Redact == nil {
		o.Redact = func(_, text string) string { return text }
	}
	return []postrun.Task{
		{Name: TaskEmbeddings, Due: hasMemory, Do: o.withDrawnMemory(o.embed)},
		{Name: TaskTitle, Due: mayNeedTitle, Do: o.withDrawnMemory(o.title)},
	}
}

// withDrawnMemory returns a task whose memory is drawn from that of its namespace, and returned when the task has ended.
func (o *Options) withDrawnMemory(do func(context.Context, postrun.Run) error) func(context.Context, postrun.Run) error {
	return func(ctx context.Context, run postrun.Run) error {
		ctx, done := o.Memory.Begin(ctx, run.Thread.Namespace)
		defer done()
		return do(ctx, run)
	}
}

// agent returns the agent that made a run. It returns nil if the agent is not ready: there is nothing to do then.
func (o *Options) agent(ctx context.Context, run *postrun.Run) (*definition.Agent, error) {
	a, err := o.Definitions.Agent(ctx, run.Thread.Namespace, run.Run.Agent)
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return nil, nil
	}
	return a, err
}

// apply writes the outcome of a task. It writes nothing, and returns nil, if the thread is gone or retained without an
// object.
func (o *Options) apply(ctx context.Context, threadID string, ops ...store.Op) error {
	err := o.Store.Apply(ctx, threadID, nil, ops...)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrRetained) {
		return nil
	}
	return err
}

// contentOf returns the text of a message, or "" if it has none.
func contentOf(m *store.Message) string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}
