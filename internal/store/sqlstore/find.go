package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Queries that find threads without their ids.
const (
	inOrder = ` ORDER BY t.created_at, t.key LIMIT ?`

	qThreadsByName             = `SELECT ` + threadColumns + fromThreads + ` WHERE t.name = ?` + inOrder
	qThreadsByShort            = `SELECT ` + threadColumns + fromThreads + ` WHERE substr(t.id, 25) = ?` + inOrder
	qThreadsOfNamespaceByName  = `SELECT ` + threadColumns + fromThreads + ` WHERE t.name = ? AND t.namespace = ?` + inOrder
	qThreadsOfNamespaceByShort = `SELECT ` + threadColumns + fromThreads + ` WHERE substr(t.id, 25) = ? AND t.namespace = ?` + inOrder

	// This lists the namespaces with threads by jumping through the index from one namespace to the next.
	qNamespaces = `WITH RECURSIVE n (namespace) AS (
			SELECT min(namespace) FROM thread_head
			UNION ALL
			SELECT (SELECT min(namespace) FROM thread_head WHERE namespace > n.namespace)
			FROM n WHERE n.namespace IS NOT NULL)
		SELECT namespace FROM n WHERE namespace IS NOT NULL`
)

// FindThreads implements store.Store.
func (s *Store) FindThreads(ctx context.Context, q store.FindQuery) ([]store.Thread, error) {
	q.Limit = pageSize(q.Limit)
	switch {
	case q.ShortID != "" && q.Namespace != "":
		return s.listThreads(ctx, qThreadsOfNamespaceByShort, q.ShortID, q.Namespace, q.Limit)
	case q.ShortID != "":
		return s.listThreads(ctx, qThreadsByShort, q.ShortID, q.Limit)
	case q.Name != "" && q.Namespace != "":
		return s.listThreads(ctx, qThreadsOfNamespaceByName, q.Name, q.Namespace, q.Limit)
	case q.Name != "":
		return s.listThreads(ctx, qThreadsByName, q.Name, q.Limit)
	}
	return nil, fmt.Errorf("find threads: set a name or a short id")
}

// Namespaces implements store.Store.
func (s *Store) Namespaces(ctx context.Context) ([]string, error) {
	namespaces, err := readColumn[string](ctx, s.readers, qNamespaces)
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return namespaces, nil
}
