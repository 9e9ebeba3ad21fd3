package values

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// afterPrefix returns a string that sorts after all keys that begin with prefix. No key has the last character of
// Unicode twice after the prefix.
func afterPrefix(prefix string) string { return prefix + "\U0010FFFF\U0010FFFF" }

// keyPage reads a page of keys. The last of args is the limit + 1.
func keyPage(ctx context.Context, c *sqldb.Conn, q store.KeyQuery, query string, args ...any) (*store.KeyPage, error) {
	page := &store.KeyPage{Keys: []string{}}
	err := c.Rows(ctx, query, args, func(scan sqldb.Scanner) error {
		var key string
		if err := scan(&key); err != nil {
			return err
		}
		if len(page.Keys) == q.Limit {
			page.HasMore = true
			return nil
		}
		page.Keys = append(page.Keys, key)
		return nil
	})
	return page, err
}

// ValueKeys implements store.SessionStore.
func (s Store) ValueKeys(ctx context.Context, threadID string, q store.KeyQuery) (page *store.KeyPage, err error) {
	q.Limit = sqldb.PageSize(q.Limit)
	err = s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, key int64) error {
		page, err = keyPage(ctx, c, q, queries.ValueKeys, key, q.After, q.Prefix, afterPrefix(q.Prefix), q.Limit+1)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keys of thread %s: %w", threadID, err)
	}
	return page, nil
}

// GetKV implements store.SessionStore.
func (s Store) GetKV(ctx context.Context, ns store.Namespace, name, key string) (*store.KVEntry, error) {
	e := store.KVEntry{Key: key}
	var value string
	if err := s.DB.Readers.Row(ctx, queries.GetKV, []any{ns.Name, name, key, ns.UID, ns.UID, s.DB.Now()}, &value, &e.ExpiresAt, &e.UpdatedAt); err != nil {
		return nil, fmt.Errorf("value %q of store %s/%s: %w", key, ns.Name, name, err)
	}
	e.Value = json.RawMessage(value)
	return &e, nil
}

// SetKV implements store.SessionStore.
func (s Store) SetKV(ctx context.Context, ns store.Namespace, name string, e store.KVEntry) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		return t.Write(t.Ctx, queries.SetKV, ns.Name, name, e.Key, ns.UID, e.ExpiresAt, t.Now, string(e.Value))
	})
}

// DeleteKV implements store.SessionStore. An expired value counts as missing.
func (s Store) DeleteKV(ctx context.Context, ns store.Namespace, name, key string) (there bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		var expires int64
		err := t.Row(t.Ctx, queries.DeleteKV, []any{ns.Name, name, key, ns.UID, ns.UID}, &expires)
		there = err == nil && (expires == 0 || expires > t.Now)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	return there && err == nil, err
}

// KVKeys implements store.SessionStore.
func (s Store) KVKeys(ctx context.Context, ns store.Namespace, name string, q store.KeyQuery) (page *store.KeyPage, err error) {
	q.Limit = sqldb.PageSize(q.Limit)
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		page, err = keyPage(ctx, c, q, queries.KVKeys, ns.Name, name, ns.UID, ns.UID, q.After, q.Prefix, afterPrefix(q.Prefix), s.DB.Now(), q.Limit+1)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keys of store %s/%s: %w", ns.Name, name, err)
	}
	return page, nil
}

// sweepStep limits what one transaction of a sweep removes.
const sweepStep = 500

// SweepSession implements store.SessionStore.
func (s Store) SweepSession(ctx context.Context, feedBefore int64) (removed int64, more bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		removed, more = 0, false
		var expired [][3]string
		if err := t.Rows(t.Ctx, queries.Expired, []any{t.Now, sweepStep}, func(scan sqldb.Scanner) error {
			var k [3]string
			err := scan(&k[0], &k[1], &k[2])
			expired = append(expired, k)
			return err
		}); err != nil {
			return err
		}
		for _, k := range expired {
			n, err := t.Exec(t.Ctx, queries.ExpireKV, k[0], k[1], k[2], t.Now)
			if err != nil {
				return err
			}
			removed += n
		}
		n, err := t.Exec(t.Ctx, queries.SweepLifecycle, sweepStep, feedBefore)
		removed += n
		more = len(expired) == sweepStep || n == sweepStep
		return err
	})
	return removed, more, err
}
