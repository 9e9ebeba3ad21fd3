package messages

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// remnant makes a thread row without a writer, which no list shows.
func remnant(t *txn.Tx) (key int64, err error) {
	err = t.Row(t.Ctx, queries.InsertLeft, []any{"left:" + uuid.NewString(), t.Now}, &key)
	return key, err
}

// dropRemnant removes a remnant without messages.
func dropRemnant(t *txn.Tx, key int64) error {
	if err := t.Write(t.Ctx, queries.DropMessageUses, key); err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.DeleteThread, key)
}

// RemnantsOf returns the remnants whose messages a thread has inherited. They are all that the end of its segments can leave without a reader:
// a fork has a segment for each thread that it reads, however many forks are between the two.
func RemnantsOf(t *txn.Tx, h *txn.Head) ([]int64, error) {
	if h.Base == 0 { // it has inherited nothing
		return nil, nil
	}
	return sqldb.Column[int64](t.Ctx, t, queries.RemnantsOf, h.Key)
}

// CollectLeft removes those of some threads that are remnants which no fork reads any more.
func CollectLeft(ctx context.Context, db *txn.DB, keys []int64) error {
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // a fork has several segments of one source where messages were edited
	for _, key := range keys {
		var unread bool
		found, err := sqldb.Found(db.Readers.Row(ctx, queries.IsUnread, []any{key}, &unread))
		if err != nil {
			return err
		}
		if found && unread {
			if err := RemoveRemnant(ctx, db, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveRemnant removes the remnant with a key. It does nothing when a fork reads it, or when the key is not that of a remnant. Callers may
// remove the same remnant at the same time. SQLite reuses the key of a deleted row for the next thread, so each transaction checks the key
// again.
func RemoveRemnant(ctx context.Context, db *txn.DB, key int64) error {
	for more := true; more; {
		if err := db.Writer.Do(ctx, func(t *txn.Tx) error {
			more = false
			var unread bool
			found, err := sqldb.Found(t.Row(t.Ctx, queries.IsUnread, []any{key}, &unread))
			if err != nil || !found || !unread {
				return err
			}
			n, err := t.Exec(t.Ctx, queries.PurgeMessages, key, key, Slice)
			if err != nil {
				return err
			}
			if more = n == Slice; more {
				return nil
			}
			return dropRemnant(t, key)
		}); err != nil {
			return err
		}
	}
	return nil
}

// SweepRemnants implements store.Store.
func (s Store) SweepRemnants(ctx context.Context, after int64, limit int) (last int64, removed int, err error) {
	limit = sqldb.PageSize(limit)
	var unread []int64
	seen := 0
	if err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		unread, seen = nil, 0
		return c.Rows(ctx, queries.Remnants, []any{after, limit}, func(scan sqldb.Scanner) error {
			var free bool
			err := scan(&last, &free)
			if seen++; free {
				unread = append(unread, last)
			}
			return err
		})
	}); err != nil {
		return 0, 0, fmt.Errorf("look for messages that were kept for forks: %w", err)
	}
	if seen < limit {
		last = 0
	}
	var failed []error
	for _, key := range unread { // one that cannot be removed keeps none of the others
		if err := RemoveRemnant(ctx, s.DB, key); err != nil {
			failed = append(failed, fmt.Errorf("remove messages that were kept for forks: %w", err))
			if ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) {
				return 0, removed, errors.Join(failed...)
			}
			continue
		}
		removed++
	}
	return last, removed, errors.Join(failed...)
}
