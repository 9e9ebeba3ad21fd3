package client

import (
	"context"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Compact asks for a summary of older messages, and does not wait for it (MSG-12). An event with the id of the request says
// what came of it.
func (t *Thread) Compact(ctx context.Context, c runtimev1.Compact) (*runtimev1.CompactRequest, error) {
	return sendAs[runtimev1.CompactRequest](ctx, t, http.MethodPost, c, runtimev1.SubresourceCompact)
}
