package thread

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// SearchMessages finds messages by their text, the best first (THR-16). The query's Namespaces restrict the search. nil
// searches all of them, which is for callers that may read everything.
func (s *Service) SearchMessages(ctx context.Context, q store.SearchQuery) (hits []store.SearchHit, more bool, err error) {
	switch q.Role {
	case "", store.RoleSystem, store.RoleUser, store.RoleAssistant, store.RoleTool:
	default:
		return nil, false, invalid("role", "give system, user, assistant or tool, not %q", q.Role)
	}
	hits, more, err = s.store.Search(ctx, q)
	if errors.Is(err, store.ErrSearchText) {
		e := invalid("q", "%s", err.Error())
		e.cause = err
		return nil, false, e
	}
	return hits, more, err
}
