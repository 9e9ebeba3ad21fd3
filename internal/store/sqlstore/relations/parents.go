package relations

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// ParentRelationships implements store.RelationStore.
func (s Store) ParentRelationships(ctx context.Context, threadIDs []string) (map[string][]store.Relationship, error) {
	parents := map[string][]store.Relationship{}
	for len(threadIDs) > 0 {
		n := min(len(threadIDs), queries.ParentsAtOnce)
		args := make([]any, queries.ParentsAtOnce)
		for i := range args {
			args[i] = threadIDs[min(i, n-1)]
		}
		threadIDs = threadIDs[n:]
		if err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
			return c.Rows(ctx, queries.ParentRelationships, args, func(scan sqldb.Scanner) error {
				var id string
				var r store.Relationship
				if err := scan(&id, &r.ThreadID, &r.Name, &r.Type, &r.Role, &r.MessageIndex, &r.CreatedAt, &r.Comment); err != nil {
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
