package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// setEnv sets variables of the thread and of every active descendant that they reach (ENV-04).
func (t *tx) setEnv(h *head, op *store.SetEnv) error {
	reached := map[string]*head{h.id: h}
	for i := range op.Vars {
		v := &op.Vars[i]
		if err := t.putEnv(h, v); err != nil {
			return err
		}
		heirs, err := t.envHeirs(h, v.Name)
		if err != nil {
			return err
		}
		copied := *v // with the type that putEnv filled in
		copied.Origin, copied.Entry, copied.Version = store.EnvInherited, "", ""
		for _, heir := range heirs {
			if err := t.putEnv(heir, &copied); err != nil {
				return err
			}
			reached[heir.id] = heir
		}
	}
	for _, r := range reached {
		if err := t.wakeForEnv(r); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) putEnv(h *head, v *store.EnvVar) error {
	keep, kind := 0, v.Type
	if kind == "" {
		keep, kind = 1, store.EnvSecret
	}
	origin := v.Origin
	if origin == "" {
		origin = store.EnvSet
	}
	h.touch(store.ChangedThread)
	return t.row(t.ctx, qSetEnv, []any{h.key, v.Name, string(kind), v.Value, int64(v.KeyID), string(origin), v.Entry, v.Version, t.now, keep}, &v.Type)
}

// envHeirs returns the active descendants that a name reaches.
func (t *tx) envHeirs(h *head, name string) ([]*head, error) {
	mark := "," + name + ","
	ids, err := column[string](t.ctx, t, qEnvHeirs, h.id, mark, mark)
	if err != nil {
		return nil, err
	}
	heirs := make([]*head, 0, len(ids))
	for _, id := range ids {
		heir, err := t.head(id)
		if err != nil {
			return nil, err
		}
		heirs = append(heirs, heir)
	}
	return heirs, nil
}

// wakeForEnv wakes a run that waits for variables, so that it checks again (ENV-06).
func (t *tx) wakeForEnv(h *head) error {
	var one int
	if waits, err := found(t.row(t.ctx, qEnvWaits, []any{h.key}, &one)); err != nil || !waits {
		return err
	}
	return t.enqueue(h, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}, IgnoreTerminated: true})
}

func (t *tx) unsetEnv(h *head, op *store.UnsetEnv) error {
	op.Removed = 0
	for _, name := range op.Names {
		n, err := t.exec(t.ctx, qUnsetEnv, h.key, name)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		op.Removed++
		h.touch(store.ChangedThread)
		heirs, err := t.envHeirs(h, name)
		if err != nil {
			return err
		}
		for _, heir := range heirs {
			n, err := t.exec(t.ctx, qUnsetInheritedEnv, heir.key, name)
			if err != nil {
				return err
			}
			if n > 0 {
				heir.touch(store.ChangedThread)
			}
		}
	}
	return nil
}

func (t *tx) scopeEnv(h *head, op *store.ScopeEnv) error {
	var before string
	if err := t.row(t.ctx, qScopedEnv, []any{h.key}, &before); err != nil {
		return err
	}
	after := joinNames(op.Names)
	if after == before {
		return nil
	}
	if _, err := t.exec(t.ctx, qScopeEnv, after, h.key); err != nil {
		return err
	}
	h.touch(store.ChangedThread)
	was := splitNames(before)
	for _, name := range op.Names {
		if slices.Contains(was, name) {
			continue
		}
		if _, err := t.exec(t.ctx, qUnsetInheritedEnv, h.key, name); err != nil {
			return err
		}
	}
	return nil
}

// joinNames returns the sorted names, each between commas; "" for none.
func joinNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return "," + strings.Join(slices.Compact(names), ",,") + ","
}

func splitNames(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.Trim(s, ","), ",,")
}

// Env implements store.EnvStore.
func (s *Store) Env(ctx context.Context, threadID string) ([]store.EnvVar, error) {
	var vars []store.EnvVar
	err := s.readers.read(ctx, func(c *conn) (err error) {
		var key int64
		if err := c.row(ctx, qThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		vars, err = list(ctx, c, scanEnvVar, qEnv, key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("variables of thread %s: %w", threadID, err)
	}
	return vars, nil
}

func scanEnvVar(scan scanner) (*store.EnvVar, error) {
	var v store.EnvVar
	var keyID int64
	err := scan(&v.Name, &v.Type, &v.Value, &keyID, &v.Origin, &v.Entry, &v.Version, &v.UpdatedAt)
	v.KeyID = uint32(keyID)
	return &v, err
}

// EnvKeys implements store.EnvStore.
func (s *Store) EnvKeys(ctx context.Context) (map[uint32]int64, error) {
	counts := map[uint32]int64{}
	err := s.readers.read(ctx, func(c *conn) error {
		return c.rows(ctx, qEnvKeys, nil, func(scan scanner) error {
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
func (s *Store) EnvNotUnder(ctx context.Context, keyID uint32, after *store.SealedEnv, limit int) ([]store.SealedEnv, error) {
	if after == nil {
		after = &store.SealedEnv{}
	}
	sealed, err := readList(ctx, s.readers, func(scan scanner) (*store.SealedEnv, error) {
		var v store.SealedEnv
		var id int64
		err := scan(&v.ThreadID, &v.RootID, &v.Name, &v.Value, &id)
		v.KeyID = uint32(id)
		return &v, err
	}, qEnvNotUnder, int64(keyID), after.ThreadID, after.ThreadID, after.Name, limit)
	if err != nil {
		return nil, fmt.Errorf("list variables under other keys: %w", err)
	}
	return sealed, nil
}

// ResealEnv implements store.EnvStore. It leaves the versions of the threads as they are.
func (s *Store) ResealEnv(ctx context.Context, values []store.ResealedEnv) error {
	return s.writer.do(ctx, func(t *tx) error {
		for _, v := range values {
			if _, err := t.exec(t.ctx, qResealEnv, v.New, int64(v.KeyID), v.ThreadID, v.Name, v.Old); err != nil {
				return err
			}
		}
		return nil
	})
}

// EnvWaiting implements store.EnvStore.
func (s *Store) EnvWaiting(ctx context.Context, namespace, after string, limit int) ([]string, error) {
	ids, err := readColumn[string](ctx, s.readers, qEnvWaiting, namespace, namespace, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list threads that wait for variables: %w", err)
	}
	return ids, nil
}
