package engine

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/store"
)

// newRelated returns the service for other threads. It returns nil if no objects of threads can be declared.
func newRelated(o Options, firstItems func(ctx context.Context, namespace, agent string) []store.InboxItem, fault func(point string)) *related.Service {
	if o.ThreadObjects == nil {
		return nil
	}
	return related.New(related.Options{
		Threads: o.Threads, Definitions: o.Definitions, Models: o.Models, Objects: o.ThreadObjects, Redact: o.Redact,
		Usage: usage.Of, FirstItems: firstItems, Accepts: acceptsNoArguments, Fault: fault, Clock: o.Clock, Log: o.Logger.WithName("engine"),
	})
}

// acceptsNoArguments returns an error if an agent requires arguments of its threads.
func acceptsNoArguments(a *definition.Agent) error {
	for _, side := range a.Sides() {
		if err := definition.CheckArguments(&side.Prompt.Spec, nil); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoThreadObjects reports that this engine makes no threads.
var ErrNoThreadObjects = errors.New("threads cannot be made here")

// HandOff hands the context of a thread to a new one (REL-03). Its errors are those of related.Service.HandOff.
func (e *Engine) HandOff(ctx context.Context, threadID string, h related.Handoff) (*related.Made, error) {
	if e.related == nil {
		return nil, ErrNoThreadObjects
	}
	return e.related.HandOff(ctx, threadID, h)
}
