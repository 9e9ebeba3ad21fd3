package threads

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// FindThreads implements store.Store.
func (s Store) FindThreads(ctx context.Context, q store.FindQuery) ([]store.Thread, error) {
	q.Limit = sqldb.PageSize(q.Limit)
	switch {
	case q.Present && (q.Name == "" || q.Namespace == ""):
		return nil, fmt.Errorf("find present threads: set a name and a namespace")
	case q.Present:
		return s.listThreads(ctx, queries.PresentThreadsByName, q.Name, q.Namespace, q.Limit)
	case q.ShortID != "" && q.Namespace != "":
		return s.listThreads(ctx, queries.ThreadsOfNamespaceByShort, q.ShortID, q.Namespace, q.Limit)
	case q.ShortID != "":
		return s.listThreads(ctx, queries.ThreadsByShort, q.ShortID, q.Limit)
	case q.Name != "" && q.Namespace != "":
		return s.listThreads(ctx, queries.ThreadsOfNamespaceByName, q.Name, q.Namespace, q.Limit)
	case q.Name != "":
		return s.listThreads(ctx, queries.ThreadsByName, q.Name, q.Limit)
	}
	return nil, fmt.Errorf("find threads: set a name or a short id")
}

// Namespaces implements store.Store.
func (s Store) Namespaces(ctx context.Context) ([]string, error) {
	namespaces, err := sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.Namespaces)
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return namespaces, nil
}
