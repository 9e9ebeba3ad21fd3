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

// Acquire implements store.Store. Epochs start at the present time, so that an epoch of a purged thread is not reused
// when a thread is created again with the same id.
func (s *Store) Acquire(ctx context.Context, threadID, owner string, ttl time.Duration) (*store.Fence, error) {
	if owner == "" || ttl <= 0 {
		return nil, errors.New("a lease needs an owner and a positive ttl")
	}
	var f *store.Fence
	err := s.writer.do(ctx, func(t *tx) error {
		h, err := t.head(threadID) // locks the head, so that nobody else takes the lease meanwhile
		if err != nil {
			return err
		}
		l, err := t.leaseOf(h)
		if err != nil {
			return err
		}
		if l.owner != "" && l.expires > t.now {
			return fmt.Errorf("thread %s: %w", threadID, store.ErrLeaseHeld)
		}
		l = lease{owner: owner, epoch: max(l.epoch+1, t.now), expires: t.now + ttl.Microseconds()}
		f = &store.Fence{ThreadID: threadID, Owner: owner, Epoch: l.epoch}
		t.keepLease(h, l)
		return t.write(t.ctx, qTakeLease, h.key, l.owner, l.epoch, l.expires)
	}, threadID)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Renew implements store.Store. It also extends an expired lease that nobody has taken.
func (s *Store) Renew(ctx context.Context, f *store.Fence, ttl time.Duration) error {
	return s.writer.do(ctx, func(t *tx) error {
		until := t.now + ttl.Microseconds()
		if t.sole() {
			h, l, err := t.held(f)
			if err != nil {
				return err
			}
			l.expires = until
			t.keepLease(h, l)
			return t.write(t.ctx, qKeepLease, until, h.key)
		}
		n, err := t.exec(t.ctx, qRenewLease, until, f.ThreadID, f.Owner, f.Epoch)
		if err == nil && n == 0 {
			return fmt.Errorf("thread %s: %w", f.ThreadID, store.ErrFenced)
		}
		return err
	}, f.ThreadID)
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, f *store.Fence) error {
	return s.writer.do(ctx, func(t *tx) error {
		var h *head
		if t.sole() {
			held, l, err := t.held(f)
			if errors.Is(err, store.ErrFenced) {
				return nil
			}
			if err != nil {
				return err
			}
			h, l.owner, l.expires = held, "", 0
			t.keepLease(h, l)
			if err := t.write(t.ctx, qFreeLease, h.key); err != nil {
				return err
			}
		} else {
			n, err := t.exec(t.ctx, qReleaseLease, f.ThreadID, f.Owner, f.Epoch)
			if err != nil || n == 0 {
				return err
			}
			if h, err = t.head(f.ThreadID); err != nil {
				return err
			}
		}
		if h.workSince.Valid {
			t.notifications = append(t.notifications, store.Notification{ThreadID: f.ThreadID, Changed: store.ChangedInbox})
		}
		return nil
	}, f.ThreadID)
}

// lease is the row of a thread's lease. It is all zero when there is none.
type lease struct {
	known   bool // also to later transactions, see sole
	owner   string
	epoch   int64
	expires int64
}

func (l lease) heldBy(f *store.Fence) bool {
	return l.owner != "" && l.owner == f.Owner && l.epoch == f.Epoch
}

// sole reports whether all writers go through this transaction's writer, so that it may remember leases.
func (t *tx) sole() bool {
	_, ok := t.session.(*serialSession)
	return ok
}

// leaseOf returns the lease of a thread.
func (t *tx) leaseOf(h *head) (lease, error) {
	if h.lease.known {
		return h.lease, nil
	}
	var l lease
	err := t.row(t.ctx, qLease, []any{h.key}, &l.owner, &l.epoch, &l.expires)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return l, err
	}
	t.keepLease(h, l)
	return l, nil
}

// keepLease remembers the lease for later transactions, where that is safe.
func (t *tx) keepLease(h *head, l lease) {
	l.known = t.sole()
	h.lease = l
}

// revoke ends the lease of a thread.
func (t *tx) revoke(h *head) error {
	h.lease = lease{}
	return t.write(t.ctx, qRevokeLease, h.key)
}

// held returns the thread and the lease of a fence while the fence is valid, and else store.ErrFenced.
func (t *tx) held(f *store.Fence) (*head, lease, error) {
	h, err := t.head(f.ThreadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, lease{}, err
	}
	if err == nil {
		l, err := t.leaseOf(h)
		if err != nil || l.heldBy(f) {
			return h, l, err
		}
	}
	return nil, lease{}, fmt.Errorf("thread %s: %w", f.ThreadID, store.ErrFenced)
}

// Runnable implements store.Store. Namespaces take turns, each with its oldest work first.
func (s *Store) Runnable(ctx context.Context, limit int) ([]string, error) {
	limit = pageSize(limit)
	var items []workItem
	err := s.readers.snapshot(ctx, func(c *conn) error {
		namespaces, err := column[string](ctx, c, qWorkNamespaces)
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
				items = append(items, w)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list runnable threads: %w", err)
	}
	slices.SortStableFunc(items, func(a, b workItem) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.since, b.since))
	})
	ids := make([]string, 0, min(limit, len(items)))
	for _, w := range items[:min(limit, len(items))] {
		ids = append(ids, w.id)
	}
	return ids, nil
}

// workItem is a thread with work. turn is its position within its namespace.
type workItem struct {
	id    string
	since int64
	turn  int
}
