package enginetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// Gate is a store that can be cut off. To the store that looks like a crash of the process: nothing later is written. Gate is
// safe for concurrent use.
type Gate struct {
	store.Store
	cut atomic.Bool

	mu     sync.Mutex
	leases []*store.Fence
	claims map[store.FiringKey]int64 // the epoch of the last claim of each
	writes int                       // since CutAfter
	limit  int                       // cut after this many writes; 0 for never
}

// Cut closes the gate. It cannot be opened again.
func (g *Gate) Cut() { g.cut.Store(true) }

// CutAfter closes the gate after the n-th write from now on. The store does that write, but the caller gets
// store.ErrUnavailable. With 0 the gate stays open and counts the writes.
func (g *Gate) CutAfter(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes, g.limit = 0, n
}

// Writes returns the number of writes since CutAfter. Taking, renewing and releasing leases do not count.
func (g *Gate) Writes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes
}

// wrote counts a write that succeeded, and closes the gate after the last one that is allowed.
func (g *Gate) wrote(err error) error {
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writes++; g.writes == g.limit {
		g.cut.Store(true)
		return store.ErrUnavailable
	}
	return nil
}

// IsCut reports whether the gate is closed.
func (g *Gate) IsCut() bool { return g.cut.Load() }

func (g *Gate) check() error {
	if g.cut.Load() {
		return store.ErrUnavailable
	}
	return nil
}

// CreateThread implements store.Store.
func (g *Gate) CreateThread(ctx context.Context, t store.Thread, ops ...store.Op) (*store.Thread, bool, error) {
	if err := g.check(); err != nil {
		return nil, false, err
	}
	created, existed, err := g.Store.CreateThread(ctx, t, ops...)
	return created, existed, g.wrote(err)
}

// Apply implements store.Store.
func (g *Gate) Apply(ctx context.Context, id string, f *store.Fence, ops ...store.Op) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.wrote(g.Store.Apply(ctx, id, f, ops...))
}

// Acquire implements store.Store.
func (g *Gate) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (*store.Fence, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	f, err := g.Store.Acquire(ctx, id, owner, ttl)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.leases = append(g.leases, f)
	}
	return f, err
}

// Expire ends the leases and the claims of firings that were taken through the gate, as if their term were over. So no test
// needs a term so short that a busy machine does not renew it in time.
func (g *Gate) Expire(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.leases {
		if err := g.Store.Release(ctx, f); err != nil && !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	for key, epoch := range g.claims { // firings that have ended stay as they are
		if err := g.Store.FinishFiring(ctx, store.FiringEnd{Key: key, Epoch: epoch, Status: store.FiringPending}); err != nil && !errors.Is(err, store.ErrFiringLost) {
			return err
		}
	}
	return nil
}

// Renew implements store.Store.
func (g *Gate) Renew(ctx context.Context, f *store.Fence, ttl time.Duration) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Store.Renew(ctx, f, ttl)
}

// Release implements store.Store.
func (g *Gate) Release(ctx context.Context, f *store.Fence) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Store.Release(ctx, f)
}

// ClaimFirings implements store.Store.
func (g *Gate) ClaimFirings(ctx context.Context, owner string, ttl time.Duration, shares map[string]int, running ...store.FiringKey) ([]store.Firing, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	firings, err := g.Store.ClaimFirings(ctx, owner, ttl, shares, running...)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.claims == nil {
		g.claims = map[store.FiringKey]int64{}
	}
	for _, f := range firings {
		g.claims[f.Key()] = f.Epoch
	}
	return firings, err
}

// RenewFirings implements store.Store.
func (g *Gate) RenewFirings(ctx context.Context, ttl time.Duration, claims []store.FiringClaim) ([]store.FiringKey, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Store.RenewFirings(ctx, ttl, claims)
}

// ReleaseFirings implements store.Store. A process that has crashed gives up nothing.
func (g *Gate) ReleaseFirings(ctx context.Context, owner string, begun ...store.FiringKey) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Store.ReleaseFirings(ctx, owner, begun...)
}

// WaitFiring implements store.Store.
func (g *Gate) WaitFiring(ctx context.Context, claim store.FiringClaim, namespace, waiting string) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Store.WaitFiring(ctx, claim, namespace, waiting)
}

// FinishFiring implements store.Store.
func (g *Gate) FinishFiring(ctx context.Context, end store.FiringEnd) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Store.FinishFiring(ctx, end)
}

// HandOver implements store.Store.
func (g *Gate) HandOver(ctx context.Context, runs []store.RunRef) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.wrote(g.Store.HandOver(ctx, runs))
}

// FinishPostRun implements store.Store.
func (g *Gate) FinishPostRun(ctx context.Context, run store.RunRef) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.wrote(g.Store.FinishPostRun(ctx, run))
}

// Inbox implements store.Store. It fails once the gate is closed, because a process that has crashed reads nothing either.
func (g *Gate) Inbox(ctx context.Context, id string) ([]store.InboxItem, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Store.Inbox(ctx, id)
}

// Work implements store.Store. Like Inbox, it fails once the gate is closed.
func (g *Gate) Work(ctx context.Context, id string) (*store.Work, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Store.Work(ctx, id)
}

// Runnable implements store.Store.
func (g *Gate) Runnable(ctx context.Context, limit int) ([]string, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Store.Runnable(ctx, limit)
}

// RunnablePage implements store.Store.
func (g *Gate) RunnablePage(ctx context.Context, after store.WorkPlace, limit int) ([]string, store.WorkPlace, error) {
	if err := g.check(); err != nil {
		return nil, nil, err
	}
	return g.Store.RunnablePage(ctx, after, limit)
}
