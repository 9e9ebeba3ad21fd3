// Package env holds the variables of threads and their inheritance.
package env

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Set sets variables of the thread and of every active descendant that they reach (ENV-04).
func Set(t *txn.Tx, h *txn.Head, op *store.SetEnv) error {
	reached := map[string]*txn.Head{h.ID: h}
	for i := range op.Vars {
		v := &op.Vars[i]
		if err := putEnv(t, h, v); err != nil {
			return err
		}
		heirs, err := envHeirs(t, h, v.Name)
		if err != nil {
			return err
		}
		copied := *v // with the type that putEnv filled in
		copied.Origin, copied.Entry, copied.Version = store.EnvInherited, "", ""
		for _, heir := range heirs {
			if err := putEnv(t, heir, &copied); err != nil {
				return err
			}
			reached[heir.ID] = heir
		}
	}
	for _, r := range reached {
		if err := Wake(t, r); err != nil {
			return err
		}
	}
	return nil
}

func putEnv(t *txn.Tx, h *txn.Head, v *store.EnvVar) error {
	keep, kind := 0, v.Type
	if kind == "" {
		keep, kind = 1, store.EnvSecret
	}
	origin := v.Origin
	if origin == "" {
		origin = store.EnvSet
	}
	h.Touch(store.ChangedThread)
	return t.Row(t.Ctx, queries.SetEnv, []any{h.Key, v.Name, string(kind), v.Value, int64(v.KeyID), string(origin), v.Entry, v.Version, t.Now, keep}, &v.Type)
}

// envHeirs returns the active descendants that a name reaches, and locks their heads. A transaction that is creating a thread has locked
// the head of its parent. So the descendants are read again until there are none whose heads were not locked before.
func envHeirs(t *txn.Tx, h *txn.Head, name string) ([]*txn.Head, error) {
	mark := "," + name + ","
	locked := map[string]*txn.Head{}
	for {
		ids, err := sqldb.Column[string](t.Ctx, t, queries.EnvHeirs, h.ID, mark, mark)
		if err != nil {
			return nil, err
		}
		heirs, known := make([]*txn.Head, 0, len(ids)), len(locked)
		for _, id := range ids {
			if locked[id] == nil {
				if locked[id], err = t.Head(id); err != nil {
					return nil, err
				}
			}
			heirs = append(heirs, locked[id])
		}
		if len(locked) == known {
			return heirs, nil
		}
	}
}

// Wake wakes a run that waits for variables, so that it checks again (ENV-06).
func Wake(t *txn.Tx, h *txn.Head) error {
	return inbox.Wake(t, h, queries.EnvWaits)
}

// Unset removes variables of the thread, and the copies that descendants inherited.
func Unset(t *txn.Tx, h *txn.Head, op *store.UnsetEnv) error {
	op.Removed = 0
	for _, name := range op.Names {
		n, err := t.Exec(t.Ctx, queries.UnsetEnv, h.Key, name)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		op.Removed++
		h.Touch(store.ChangedThread)
		heirs, err := envHeirs(t, h, name)
		if err != nil {
			return err
		}
		for _, heir := range heirs {
			n, err := t.Exec(t.Ctx, queries.UnsetInheritedEnv, heir.Key, name)
			if err != nil {
				return err
			}
			if n > 0 {
				heir.Touch(store.ChangedThread)
			}
		}
	}
	return nil
}

// Scope sets the names that the thread does not inherit. It removes the inherited values of names that were not among them before.
func Scope(t *txn.Tx, h *txn.Head, op *store.ScopeEnv) error {
	var before string
	if err := t.Row(t.Ctx, queries.ScopedEnv, []any{h.Key}, &before); err != nil {
		return err
	}
	after := JoinNames(op.Names)
	if after == before {
		return nil
	}
	if _, err := t.Exec(t.Ctx, queries.ScopeEnv, after, h.Key); err != nil {
		return err
	}
	h.Touch(store.ChangedThread)
	was := SplitNames(before)
	for _, name := range op.Names {
		if slices.Contains(was, name) {
			continue
		}
		if _, err := t.Exec(t.Ctx, queries.UnsetInheritedEnv, h.Key, name); err != nil {
			return err
		}
	}
	return nil
}

// JoinNames returns the sorted names, each between commas; "" for none.
func JoinNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return "," + strings.Join(slices.Compact(names), ",,") + ","
}

// SplitNames returns the names that JoinNames has joined.
func SplitNames(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.Trim(s, ","), ",,")
}

// Env implements store.EnvStore.
func (s Store) Env(ctx context.Context, threadID string) ([]store.EnvVar, error) {
	var vars []store.EnvVar
	there := false
	err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		vars, there = []store.EnvVar{}, false
		return c.Rows(ctx, queries.EnvOf, []any{threadID}, func(scan sqldb.Scanner) error {
			there = true
			v, err := scanEnvOf(scan)
			if v != nil {
				vars = append(vars, *v)
			}
			return err
		})
	})
	if err == nil && !there {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("variables of thread %s: %w", threadID, err)
	}
	return vars, nil
}

// scanEnvOf reads a row of queries.EnvOf. It returns nil for that of a thread without variables.
func scanEnvOf(scan sqldb.Scanner) (*store.EnvVar, error) {
	var name, kind, origin, entry, version sql.NullString
	var key, updated sql.NullInt64
	var value []byte
	if err := scan(&name, &kind, &value, &key, &origin, &entry, &version, &updated); err != nil || !name.Valid {
		return nil, err
	}
	return &store.EnvVar{Name: name.String, Type: store.EnvType(kind.String), Value: value, KeyID: uint32(key.Int64), Origin: store.EnvOrigin(origin.String),
		Entry: entry.String, Version: version.String, UpdatedAt: updated.Int64}, nil
}

// EnvKeys implements store.EnvStore.
func (s Store) EnvKeys(ctx context.Context) (map[uint32]int64, error) {
	counts := map[uint32]int64{}
	err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		return c.Rows(ctx, queries.EnvKeys, nil, func(scan sqldb.Scanner) error {
			var id, n int64
			err := scan(&id, &n)
			counts[uint32(id)] = n
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("count variables by key: %w", err)
	}
	return counts, nil
}

// EnvNotUnder implements store.EnvStore.
func (s Store) EnvNotUnder(ctx context.Context, keyID uint32, after *store.SealedEnv, limit int) ([]store.SealedEnv, error) {
	if after == nil {
		after = &store.SealedEnv{}
	}
	sealed, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.SealedEnv, error) {
		var v store.SealedEnv
		var id int64
		err := scan(&v.ThreadID, &v.RootID, &v.Name, &v.Value, &id)
		v.KeyID = uint32(id)
		return &v, err
	}, queries.EnvNotUnder, int64(keyID), after.ThreadID, after.ThreadID, after.Name, limit)
	if err != nil {
		return nil, fmt.Errorf("list variables under other keys: %w", err)
	}
	return sealed, nil
}

// ResealEnv implements store.EnvStore. It leaves the versions of the threads as they are.
func (s Store) ResealEnv(ctx context.Context, values []store.ResealedEnv) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for _, v := range values {
			if _, err := t.Exec(t.Ctx, queries.ResealEnv, v.New, int64(v.KeyID), v.ThreadID, v.Name, v.Old); err != nil {
				return err
			}
		}
		return nil
	})
}

// EnvWaiting implements store.EnvStore.
func (s Store) EnvWaiting(ctx context.Context, namespace, after string, limit int) ([]string, error) {
	ids, err := sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.EnvWaiting, namespace, namespace, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list threads that wait for variables: %w", err)
	}
	return ids, nil
}

// Store reads and reseals variables.
type Store struct{ DB *txn.DB }
