package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// parentsAtOnce is how many threads one query asks for. The number is constant, so that the query is prepared once.
const parentsAtOnce = 50

var qParentRelationships = `SELECT t.id, ` + relationshipColumns + ` FROM thread t JOIN relationship r ON r.thread = t.key
	WHERE t.id IN (` + strings.TrimSuffix(strings.Repeat("?, ", parentsAtOnce), ", ") + `) AND r.role = '` + store.RelationChild + `'
	ORDER BY t.id, r.created_at, r.peer, r.type`

// ParentRelationships implements store.RelationStore.
func (s *Store) ParentRelationships(ctx context.Context, threadIDs []string) (map[string][]store.Relationship, error) {
	parents := map[string][]store.Relationship{}
	for len(threadIDs) > 0 {
		n := min(len(threadIDs), parentsAtOnce)
		args := make([]any, parentsAtOnce)
		for i := range args {
			args[i] = threadIDs[min(i, n-1)]
		}
		threadIDs = threadIDs[n:]
		if err := s.readers.read(ctx, func(c *conn) error {
			return c.rows(ctx, qParentRelationships, args, func(scan scanner) error {
				var id string
				var r store.Relationship
				if err := scan(&id, &r.ThreadID, &r.Type, &r.Role, &r.MessageIndex, &r.CreatedAt, &r.Comment); err != nil {
					return err
				}
				if len(parents[id]) < store.MaxParents {
					parents[id] = append(parents[id], r)
				}
				return nil
			})
		}); err != nil {
			return nil, fmt.Errorf("list parent relationships: %w", err)
		}
	}
	return parents, nil
}
