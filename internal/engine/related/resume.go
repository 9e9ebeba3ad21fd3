package related

import (
	"context"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Resume declares the objects of new threads that a manager has stored and then ended before it could do so. A run repeats
// its calls by itself, but the caller of the API may not.
func (s *Service) Resume(ctx context.Context) error {
	namespaces, err := s.store.Namespaces(ctx)
	if err != nil {
		return err
	}
	for _, ns := range namespaces {
		for after := ""; ; {
			page, err := s.store.Retained(ctx, ns, after, pageSize)
			if err != nil {
				return err
			}
			for i := range page {
				if !awaitsObject(&page[i]) {
					continue
				}
				// One that the cluster refuses is removed, and keeps none of the others from their objects.
				if err := s.declare(ctx, &page[i], "resumed "+page[i].ID); err != nil && !thread.IsInvalid(err) {
					return err
				}
			}
			if len(page) < pageSize {
				break
			}
			after = page[len(page)-1].ID
		}
	}
	return nil
}

// awaitsObject reports whether a retained thread was made by a handoff and never had an object. The ids of handoffs are
// derived, which the version of the UUID says. Those of objects are random.
func awaitsObject(t *store.Thread) bool {
	id, err := uuid.Parse(t.ID)
	return err == nil && id.Version() == 5 && t.ObjectUID == ""
}
