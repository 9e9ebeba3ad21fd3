package threads

import (
	"context"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
)

// Engine is the part of the engine that ends runs and threads.
type Engine interface {
	Stop(ctx context.Context, threadID, reason string) error
	Terminate(ctx context.Context, threadID, reason string) error
	Destroy(ctx context.Context, threadID string) error
}

// Life stops, continues, terminates and destroys threads.
type Life struct {
	Engine  Engine
	Records *Records
}

// Stop answers POST stop: it ends the current run, not the thread.
func (h *Life) Stop(c *call.Call) error {
	var body runtimev1.Stop
	if err := c.Decode(&body, true); err != nil {
		return err
	}
	if err := h.Engine.Stop(c.Context(), c.Row.ID, body.Message); err != nil {
		return err
	}
	return h.Records.write(c)
}

// Continue answers POST continue: messages that have been parked since a user's stop are processed (MSG-08).
// When nothing is parked it does nothing.
func (h *Life) Continue(c *call.Call) error {
	var body runtimev1.Stop
	if err := c.Decode(&body, true); err != nil {
		return err
	}
	if _, err := c.Thread.Continue(c.Context()); err != nil {
		return err
	}
	return h.Records.write(c)
}

// Terminate answers POST terminate (THR-05, SUB-08). Repeating it is no error.
func (h *Life) Terminate(c *call.Call) error {
	var body runtimev1.Stop
	if err := c.Decode(&body, true); err != nil {
		return err
	}
	if err := h.Engine.Terminate(c.Context(), c.Row.ID, skeinv1.ReasonTerminatedByRequest); err != nil {
		return err
	}
	return h.Records.write(c)
}

// Destroy answers POST destroy: it clears the conversation, but keeps the thread (THR-06).
func (h *Life) Destroy(c *call.Call) error {
	var body runtimev1.Stop
	if err := c.Decode(&body, true); err != nil {
		return err
	}
	if err := h.Engine.Destroy(c.Context(), c.Row.ID); err != nil {
		return err
	}
	return h.Records.write(c)
}
