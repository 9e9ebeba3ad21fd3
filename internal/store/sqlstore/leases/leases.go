// Package leases says who may work on a thread, and which threads have work.
package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Acquire implements store.Store. Epochs start at the present time, so that an epoch of a purged thread is not reused
// when a thread is created again with the same id.
func (s Store) Acquire(ctx context.Context, threadID, owner string, ttl time.Duration) (*store.Fence, error) {
	if owner == "" || ttl <= 0 {
		return nil, errors.New("a lease needs an owner and a positive ttl")
	}
	var f *store.Fence
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		h, err := t.Head(threadID) // locks the head, so that no other replica takes the lease meanwhile
		if err != nil {
			return err
		}
		if h.Deleting() {
			return fmt.Errorf("thread %s: %w", threadID, store.ErrObjectDeleted)
		}
		l, err := t.LeaseOf(h)
		if err != nil {
			return err
		}
		if l.Owner != "" && l.Expires > t.Now {
			return fmt.Errorf("thread %s: %w", threadID, store.ErrLeaseHeld)
		}
		l = txn.Lease{Owner: owner, Epoch: max(l.Epoch+1, t.Now), Expires: t.Now + ttl.Microseconds()}
		f = &store.Fence{ThreadID: threadID, Owner: owner, Epoch: l.Epoch}
		t.KeepLease(h, l)
		return t.Write(t.Ctx, queries.TakeLease, h.Key, l.Owner, l.Epoch, l.Expires)
	}, threadID)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Renew implements store.Store. It also extends an expired lease that no other replica has taken.
func (s Store) Renew(ctx context.Context, f *store.Fence, ttl time.Duration) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		until := t.Now + ttl.Microseconds()
		if t.Sole() {
			h, l, err := t.Held(f)
			if err != nil {
				return err
			}
			l.Expires = until
			t.KeepLease(h, l)
			return t.Write(t.Ctx, queries.KeepLease, until, h.Key)
		}
		n, err := t.Exec(t.Ctx, queries.RenewLease, until, f.ThreadID, f.Owner, f.Epoch)
		if err == nil && n == 0 {
			return fmt.Errorf("thread %s: %w", f.ThreadID, store.ErrFenced)
		}
		return err
	}, f.ThreadID)
}

// Release implements store.Store.
func (s Store) Release(ctx context.Context, f *store.Fence) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		var h *txn.Head
		if t.Sole() {
			held, l, err := t.Held(f)
			if errors.Is(err, store.ErrFenced) {
				return nil
			}
			if err != nil {
				return err
			}
			h, l.Owner, l.Expires = held, "", 0
			t.KeepLease(h, l)
			if err := t.Write(t.Ctx, queries.FreeLease, h.Key); err != nil {
				return err
			}
		} else {
			n, err := t.Exec(t.Ctx, queries.ReleaseLease, f.ThreadID, f.Owner, f.Epoch)
			if err != nil || n == 0 {
				return err
			}
			if h, err = t.Head(f.ThreadID); err != nil {
				return err
			}
		}
		if h.WorkSince.Valid {
			t.Notifications = append(t.Notifications, store.Notification{ThreadID: f.ThreadID, Changed: store.ChangedInbox, Released: true})
		}
		return nil
	}, f.ThreadID)
}

// WithWork implements store.Store.
func (s Store) WithWork(ctx context.Context, ids []string) (free, held []string, err error) {
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		free, held = nil, nil
		for some := range slices.Chunk(ids, queries.LeasesAtOnce) {
			args := make([]any, 0, queries.LeasesAtOnce+1)
			args = append(args, s.DB.Now())
			for i := range queries.LeasesAtOnce {
				args = append(args, some[min(i, len(some)-1)])
			}
			if err := c.Rows(ctx, queries.HeldOf, args, func(scan sqldb.Scanner) error {
				var id string
				var live int64
				err := scan(&id, &live)
				if live == 0 {
					free = append(free, id)
				} else {
					held = append(held, id)
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look at leases: %w", err)
	}
	return free, held, nil
}

// Runnable implements store.Store.
func (s Store) Runnable(ctx context.Context, limit int) ([]string, error) {
	ids, _, err := s.RunnablePage(ctx, nil, limit)
	return ids, err
}

// RunnablePage implements store.Store. Namespaces take turns, each with its oldest work first.
func (s Store) RunnablePage(ctx context.Context, after store.WorkPlace, limit int) (ids []string, next store.WorkPlace, err error) {
	limit = sqldb.PageSize(limit)
	var items []workItem
	err = s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		namespaces, err := sqldb.Column[string](ctx, c, queries.WorkNamespaces)
		if err != nil {
			return err
		}
		now := s.DB.Now()
		for _, ns := range namespaces {
			from, ok := after[ns]
			if !ok {
				from = store.WorkMark{Since: math.MinInt64}
			}
			turn := 0
			if err := c.Rows(ctx, queries.Work, []any{ns, from.Since, from.Since, from.Key, now, limit + 1}, func(scan sqldb.Scanner) error {
				w := workItem{namespace: ns, turn: turn}
				turn++
				err := scan(&w.id, &w.Since, &w.Key)
				items = append(items, w)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list runnable threads: %w", err)
	}
	slices.SortStableFunc(items, func(a, b workItem) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.Since, b.Since))
	})
	if len(items) > limit {
		items, next = items[:limit], maps.Clone(after)
		if next == nil {
			next = store.WorkPlace{}
		}
	}
	ids = make([]string, 0, len(items))
	for _, w := range items {
		ids = append(ids, w.id)
		if next != nil {
			next[w.namespace] = w.WorkMark
		}
	}
	return ids, next, nil
}

// workItem is a thread with work. turn is its position within its namespace.
type workItem struct {
	store.WorkMark
	namespace string
	id        string
	turn      int
}

// Store gives out leases.
type Store struct{ DB *txn.DB }
