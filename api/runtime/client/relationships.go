package client

import (
	"context"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Truncate removes all messages after one, and the relationships made past it (MSG-11). The queue stays. An
// error that IsConflict while a run is under way, or when the thread is not at the expected version.
func (t *Thread) Truncate(ctx context.Context, at runtimev1.Truncate) (*runtimev1.Truncated, error) {
	return one[runtimev1.Truncated](func(out any) error {
		return t.send(ctx, http.MethodPost, at, out, runtimev1.SubresourceTruncate)
	})
}

// Relationships gives a page of the thread's relationships with others, oldest first (REL-01).
func (t *Thread) Relationships(ctx context.Context, p Page) (*runtimev1.RelationshipList, error) {
	return one[runtimev1.RelationshipList](func(out any) error { return t.getAt(ctx, out, p.params(), runtimev1.SubresourceRelationships) })
}

// Relate keeps a handoff or a mention between the thread and another of its namespace, on both ends. A second one of
// the same thread, type and role changes nothing.
func (t *Thread) Relate(ctx context.Context, r runtimev1.Relationship) (*runtimev1.Relationship, error) {
	return one[runtimev1.Relationship](func(out any) error {
		return t.send(ctx, http.MethodPost, r, out, runtimev1.SubresourceRelationships)
	})
}
