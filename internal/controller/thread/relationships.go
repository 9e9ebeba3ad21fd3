package thread

import (
	"context"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// computeRelationships sets what the thread was forked from, and its relationships (REL-01, REL-02). Their comments, which
// a model may have written, stay in the store (K8S-07).
func (r *Reconciler) computeRelationships(ctx context.Context, s *scope) error {
	row, status := s.row, &s.object.Status
	if row == nil {
		return nil
	}
	status.OriginThreadID, status.ForkPointIndex, status.MainThreadID = row.OriginID, nil, ""
	if row.OriginID != "" {
		index := row.ForkIndex
		status.ForkPointIndex = &index
	}
	if row.ParentID != "" {
		status.MainThreadID = row.RootID
	}
	rs, total, err := r.Threads.Store().NewestRelationships(ctx, row.ID, skeinv1.MaxStatusRelationships)
	if err != nil {
		return fmt.Errorf("read the relationships: %w", err)
	}
	status.RelationshipCount, status.Relationships = total, nil
	for _, one := range rs {
		entry := skeinv1.RelationshipStatus{ThreadID: one.ThreadID, ThreadName: one.Name, Type: string(one.Type), Role: one.Role, CreatedAt: one.CreatedAt}
		if one.MessageIndex >= 0 {
			index := one.MessageIndex
			entry.MessageIndex = &index
		}
		status.Relationships = append(status.Relationships, entry)
	}
	return nil
}
