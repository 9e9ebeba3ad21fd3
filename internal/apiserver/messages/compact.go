package messages

import (
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
)

// Compact answers POST compact: it asks for a summary of older messages and does not wait for it (MSG-12).
func (h *Handler) Compact(c *call.Call) error {
	var body runtimev1.Compact
	if err := c.Decode(&body, true); err != nil {
		return err
	}
	key := c.IdempotencyKey(body.IdempotencyKey)
	if err := c.Claim("compact", key, body.Side); err != nil {
		return err
	}
	request, err := h.Engine.Compact(c.Context(), c.Row.ID, key, body.Side)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusAccepted, runtimev1.CompactRequest{Request: request})
}
