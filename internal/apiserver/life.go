package apiserver

import (
	"context"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// lifeEngine is the part of the engine that ends runs and threads.
type lifeEngine interface {
	Stop(ctx context.Context, threadID, reason string) error
	Terminate(ctx context.Context, threadID, reason string) error
	Destroy(ctx context.Context, threadID string) error
}

// lifeHandler stops, continues, terminates and destroys threads.
type lifeHandler struct {
	engine  lifeEngine
	records *recordHandler
}

// destroyThread answers POST destroy: it clears the conversation, but keeps the thread (THR-06).
func (h *lifeHandler) destroyThread(c *call) error {
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	if err := h.engine.Destroy(c.r.Context(), c.row.ID); err != nil {
		return err
	}
	return h.records.writeThread(c)
}

// continueThread answers POST continue: messages that have been parked since a user's stop are processed (MSG-08).
// When nothing is parked it does nothing.
func (h *lifeHandler) continueThread(c *call) error {
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	if _, err := c.thread.Continue(c.r.Context()); err != nil {
		return err
	}
	return h.records.writeThread(c)
}

// stopThread answers POST stop: it ends the current run, not the thread.
func (h *lifeHandler) stopThread(c *call) error {
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	if err := h.engine.Stop(c.r.Context(), c.row.ID, body.Message); err != nil {
		return err
	}
	return h.records.writeThread(c)
}

// terminateThread answers POST terminate (THR-05, SUB-08). Repeating it is no error.
func (h *lifeHandler) terminateThread(c *call) error {
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	if err := h.engine.Terminate(c.r.Context(), c.row.ID, skeinv1.ReasonTerminatedByRequest); err != nil {
		return err
	}
	return h.records.writeThread(c)
}
