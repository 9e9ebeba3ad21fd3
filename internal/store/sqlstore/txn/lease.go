package txn

import (
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
)

// CheckFence returns store.ErrFenced unless the fence belongs to the present holder (THR-12). An expired lease still
// passes while no other replica has taken it: the epoch is the fence, not the clock.
func (t *Tx) CheckFence(h *Head, f *store.Fence) error {
	if p, ok := t.session.(pipelined); ok && f.ThreadID == h.ID {
		if known, holds := p.checkFence(h, f); known && holds {
			return nil
		}
	}
	l, err := t.LeaseOf(h)
	if err != nil {
		return err
	}
	if f.ThreadID != h.ID || !l.heldBy(f) {
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrFenced)
	}
	return nil
}

// Lease is the row of a thread's lease. It is all zero when there is none.
type Lease struct {
	known   bool // also to later transactions, see Sole
	Owner   string
	Epoch   int64
	Expires int64
}

func (l Lease) heldBy(f *store.Fence) bool {
	return l.Owner != "" && l.Owner == f.Owner && l.Epoch == f.Epoch
}

// Sole reports whether all writers go through this transaction's writer, so that it may remember leases.
func (t *Tx) Sole() bool {
	_, ok := t.session.(*serialSession)
	return ok
}

// LeaseOf returns the lease of a thread.
func (t *Tx) LeaseOf(h *Head) (Lease, error) {
	if h.lease.known {
		return h.lease, nil
	}
	var l Lease
	err := t.Row(t.Ctx, queries.Lease, []any{h.Key}, &l.Owner, &l.Epoch, &l.Expires)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return l, err
	}
	t.KeepLease(h, l)
	return l, nil
}

// KeepLease remembers the lease for later transactions, where that is safe.
func (t *Tx) KeepLease(h *Head, l Lease) {
	l.known = t.Sole()
	h.lease = l
}

// Revoke ends the lease of a thread.
func (t *Tx) Revoke(h *Head) error {
	h.lease = Lease{}
	return t.Write(t.Ctx, queries.RevokeLease, h.Key)
}

// Held returns the thread and the lease of a fence while the fence is valid, and else store.ErrFenced.
func (t *Tx) Held(f *store.Fence) (*Head, Lease, error) {
	h, err := t.Head(f.ThreadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, Lease{}, err
	}
	if err == nil {
		l, err := t.LeaseOf(h)
		if err != nil || l.heldBy(f) {
			return h, l, err
		}
	}
	return nil, Lease{}, fmt.Errorf("thread %s: %w", f.ThreadID, store.ErrFenced)
}
