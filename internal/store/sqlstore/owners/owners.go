// Package owners knows to which namespace each row belongs, when several namespaces have had the same name.
package owners

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Slice is how many rows of a table one transaction changes. Tests set it lower.
var Slice int64 = 500

// owned are the tables. Threads come first: code of a thread asks for the key-values of the thread's owner.
var owned = []queries.Owned{queries.ThreadsOwned, queries.UsageOwned, queries.KVOwned}

// Store implements store.OwnerStore.
type Store struct{ DB *txn.DB }

// Cluster implements store.OwnerStore.
func (s Store) Cluster(ctx context.Context) (uid string, err error) {
	if _, err := sqldb.Found(s.DB.Readers.Row(ctx, queries.Cluster, nil, &uid)); err != nil {
		return "", fmt.Errorf("read which cluster this is: %w", err)
	}
	return uid, nil
}

// SetCluster implements store.OwnerStore.
func (s Store) SetCluster(ctx context.Context, uid string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error { return t.Write(t.Ctx, queries.SetCluster, uid) })
}

// Owners implements store.OwnerStore. It jumps through an index from one namespace to the next.
func (s Store) Owners(ctx context.Context) (all []store.Namespace, err error) {
	seen := map[store.Namespace]bool{}
	for _, o := range owned {
		var at store.Namespace
		for {
			found, err := sqldb.Found(s.DB.Readers.Row(ctx, o.NextOwner, []any{at.Name, at.UID}, &at.Name, &at.UID))
			if err != nil {
				return nil, fmt.Errorf("list the namespaces that rows belong to: %w", err)
			}
			if !found {
				break
			}
			if !seen[at] {
				seen[at] = true
				all = append(all, at)
			}
		}
	}
	return all, nil
}

// FormerOwners implements store.OwnerStore. It reads all rows, which is necessary once for each cluster.
func (s Store) FormerOwners(ctx context.Context) (all []store.Namespace, err error) {
	all, err = sqldb.ReadList(ctx, s.DB.Readers.Interruptible(), func(scan sqldb.Scanner) (*store.Namespace, error) {
		var ns store.Namespace
		return &ns, scan(&ns.Name, &ns.UID)
	}, queries.FormerOwners)
	if err != nil {
		return nil, fmt.Errorf("list the namespaces of another cluster: %w", err)
	}
	return all, nil
}

// GiveThreads implements store.OwnerStore.
func (s Store) GiveThreads(ctx context.Context, from store.Namespace, uid string, retained bool) (n int64, err error) {
	if from.UID == "" || from.UID == uid {
		return 0, nil
	}
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
		n, err = t.Exec(t.Ctx, queries.GiveThreads(retained), uid, from.UID, from.Name, from.UID, Slice)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("give threads of namespace %s to another one: %w", from.Name, err)
	}
	return n, nil
}

// GiveRows implements store.OwnerStore. It gives a slice of rows of the first table that has some, so that a call takes little time. The
// caller calls it until n is 0.
func (s Store) GiveRows(ctx context.Context, from store.Namespace, uid string) (n int64, err error) {
	for i := 0; i < len(owned) && n == 0; i++ { // a table after the one before has no more
		err = s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			n, err = t.Exec(t.Ctx, owned[i].Give, uid, from.Name, from.UID, from.Name, from.UID, Slice)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("give what goes by the name of namespace %s to another one: %w", from.Name, err)
		}
	}
	return n, nil
}

// RemoveRows implements store.OwnerStore. As GiveRows does, it removes a slice of rows of the first table that has some.
func (s Store) RemoveRows(ctx context.Context, ns store.Namespace) (n int64, err error) {
	for i := 0; i < len(owned) && n == 0; i++ {
		if owned[i].Drop == "" || ns.UID == "" {
			continue
		}
		err = s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			n, err = t.Exec(t.Ctx, owned[i].Drop, ns.Name, ns.UID, ns.Name, ns.UID, Slice)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("remove what went by the name of namespace %s: %w", ns.Name, err)
		}
	}
	return n, nil
}
