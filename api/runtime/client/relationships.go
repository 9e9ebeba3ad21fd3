package client

import (
	"context"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Truncate removes all messages after a given one, and the relationships made after it (MSG-11). The queue stays. The
// error is one that IsConflict during a run, or when the thread does not have the expected version.
func (t *Thread) Truncate(ctx context.Context, at runtimev1.Truncate) (*runtimev1.Truncated, error) {
	return sendAs[runtimev1.Truncated](ctx, t, http.MethodPost, at, runtimev1.SubresourceTruncate)
}

// Relationships returns a page of the thread's relationships with other threads, oldest first (REL-01).
func (t *Thread) Relationships(ctx context.Context, p Page) (*runtimev1.RelationshipList, error) {
	return readAs[runtimev1.RelationshipList](ctx, t, p.params(), runtimev1.SubresourceRelationships)
}

// Relate stores a handoff or a mention between the thread and another of its namespace, at both ends. A second
// relationship with the same thread, type and role changes nothing.
func (t *Thread) Relate(ctx context.Context, r runtimev1.Relationship) (*runtimev1.Relationship, error) {
	return sendAs[runtimev1.Relationship](ctx, t, http.MethodPost, r, runtimev1.SubresourceRelationships)
}

// HandOff starts a new thread for a goal, with a summary of this one that a model writes, and with copies of files
// (REL-03). The caller needs the right to create Threads in the namespace, too. The call takes as long as the model does.
func (t *Thread) HandOff(ctx context.Context, h runtimev1.ContextHandoff) (*runtimev1.HandedOff, error) {
	return sendAs[runtimev1.HandedOff](ctx, t, http.MethodPost, h, runtimev1.SubresourceHandoff)
}
