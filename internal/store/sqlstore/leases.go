package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// Acquire takes the thread's lease under a new epoch. Epochs begin at the present time, so that those of
// a thread that was purged and made again under the same id do not come back.
func (s *Store) Acquire(ctx context.Context, threadID, owner string, ttl time.Duration) (*store.Fence, error) {
	if owner == "" || ttl <= 0 {
		return nil, errors.New("a lease needs an owner and a term")
	}
	var f *store.Fence
	err := s.writer.do(ctx, func(t *tx) error {
		h, err := t.head(threadID) // which keeps others from taking the lease meanwhile
		if err != nil {
			return err
		}
		var holder string
		var epoch, expires int64
		err = t.row(t.ctx, qLease, []any{h.key}, &holder, &epoch, &expires)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if holder != "" && expires > t.now {
			return fmt.Errorf("thread %s: %w", threadID, store.ErrLeaseHeld)
		}
		f = &store.Fence{ThreadID: threadID, Owner: owner, Epoch: max(epoch+1, t.now)}
		return t.write(t.ctx, qTakeLease, h.key, owner, f.Epoch, t.now+ttl.Microseconds())
	}, threadID)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Renew extends the lease, also one that has run out while nobody took it.
func (s *Store) Renew(ctx context.Context, f *store.Fence, ttl time.Duration) error {
	return s.writer.do(ctx, func(t *tx) error {
		n, err := t.exec(t.ctx, qRenewLease, t.now+ttl.Microseconds(), f.ThreadID, f.Owner, f.Epoch)
		if err == nil && n == 0 {
			return fmt.Errorf("thread %s: %w", f.ThreadID, store.ErrFenced)
		}
		return err
	}, f.ThreadID)
}

// Release gives the lease back, and wakes those who look for work when there is more.
func (s *Store) Release(ctx context.Context, f *store.Fence) error {
	return s.writer.do(ctx, func(t *tx) error {
		n, err := t.exec(t.ctx, qReleaseLease, f.ThreadID, f.Owner, f.Epoch)
		if err != nil || n == 0 {
			return err
		}
		h, err := t.head(f.ThreadID)
		if err == nil && h.workSince.Valid {
			t.hints = append(t.hints, store.Hint{ThreadID: f.ThreadID, Changed: store.ChangedInbox})
		}
		return err
	}, f.ThreadID)
}

// Runnable lists threads with work that nobody holds. Namespaces take turns, each with its oldest first.
func (s *Store) Runnable(ctx context.Context, limit int) ([]string, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	var found []workItem
	err := s.readers.snapshot(ctx, func(c *conn) error {
		namespaces, err := workNamespaces(ctx, c)
		if err != nil {
			return err
		}
		now := s.now()
		for _, ns := range namespaces {
			turn := 0
			if err := c.rows(ctx, qWork, []any{ns, now, limit}, func(scan scanner) error {
				w := workItem{turn: turn}
				turn++
				err := scan(&w.id, &w.since)
				found = append(found, w)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for work: %w", err)
	}
	slices.SortStableFunc(found, func(a, b workItem) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.since, b.since))
	})
	ids := make([]string, 0, min(limit, len(found)))
	for _, w := range found[:min(limit, len(found))] {
		ids = append(ids, w.id)
	}
	return ids, nil
}

// workItem is a thread with work, the turn-th of its namespace.
type workItem struct {
	id    string
	since int64
	turn  int
}

func workNamespaces(ctx context.Context, c *conn) (namespaces []string, err error) {
	err = c.rows(ctx, qWorkNamespaces, nil, func(scan scanner) error {
		var ns string
		err := scan(&ns)
		namespaces = append(namespaces, ns)
		return err
	})
	return namespaces, err
}
