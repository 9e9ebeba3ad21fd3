package threads

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// ManyChanges is how many changes of the number of living children in a namespace are added to the counts at once. A reservation reads
// about as many rows, however many children there are.
const ManyChanges = 64

// livingChildren holds the numbers of living children in the scopes of one child.
type livingChildren struct {
	of      map[store.ChildScope]int
	changes int64 // that are not added to the counts yet
}

// countLiving returns how many children live in the scopes of a child. No other transaction reserves a child of the namespace until this
// one ends.
func (s Store) countLiving(t *txn.Tx, c store.ChildTask) (livingChildren, error) {
	found := livingChildren{of: map[store.ChildScope]int{}}
	if err := t.Write(t.Ctx, queries.LockChildren, c.Namespace); err != nil {
		return found, err
	}
	err := t.Rows(t.Ctx, queries.LivingInScopes, queries.ScopesOf(c.Namespace, c.ParentID, c.Kind, c.Agent), func(scan sqldb.Scanner) error {
		var scope store.ChildScope
		var n int
		var changes int64
		if err := scan(&scope, &n, &changes); err != nil {
			return err
		}
		found.of[scope] = n
		found.changes += changes
		return nil
	})
	return found, err
}

// addChanges adds the changes of a namespace to its counts. The transaction must have locked the children of the namespace.
func (s Store) addChanges(t *txn.Tx, namespace string) error {
	for _, query := range s.DB.Dialect.AddChanges {
		if err := t.Write(t.Ctx, query, namespace); err != nil {
			return err
		}
	}
	return t.Write(t.Ctx, queries.RemoveEmptyCounts, namespace)
}

// addManyChanges adds the changes of a namespace to its counts when there are many. Without reservations nothing else does.
func (s Store) addManyChanges(ctx context.Context, namespace string) error {
	var one int
	many, err := sqldb.Found(s.DB.Readers.Row(ctx, queries.ManyChanges, []any{namespace, ManyChanges - 1}, &one))
	if err != nil || !many {
		return err
	}
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := t.Write(t.Ctx, queries.LockChildren, namespace); err != nil {
			return err
		}
		return s.addChanges(t, namespace)
	}, childrenOf(namespace))
}

// childrenOf returns what orders the transactions about the children of a namespace.
func childrenOf(namespace string) string { return "children/" + namespace }
