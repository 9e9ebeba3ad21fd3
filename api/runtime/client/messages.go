package client

import (
	"context"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// UpdateMessage merges metadata and replaces the given fields of a message (MSG-06). A missing message is an error
// that IsNotFound.
func (t *Thread) UpdateMessage(ctx context.Context, id string, u runtimev1.MessageUpdates) (*runtimev1.Message, error) {
	return sendAs[runtimev1.Message](ctx, t, http.MethodPatch, u, runtimev1.SubresourceMessages, id)
}

// DeleteMessage removes a message. With an assistant message it also removes the results of its tool calls. It
// returns false when there is no message of that id (MSG-06).
func (t *Thread) DeleteMessage(ctx context.Context, id string) (bool, error) {
	var d runtimev1.MessageDeletion
	err := t.send(ctx, http.MethodDelete, nil, &d, runtimev1.SubresourceMessages, id)
	return d.Deleted, err
}
