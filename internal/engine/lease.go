package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

// renewers is how many leases are renewed at once, so that their writes share commits.
const renewers = 32

// leases renews the leases of all threads that this replica runs, by one goroutine, at a third of their term.
type leases struct {
	store store.Store
	clock clock.WithTicker
	ttl   time.Duration
	log   logr.Logger

	mu   sync.Mutex
	held map[*heldLease]struct{}
}

type heldLease struct {
	fence  *store.Fence
	lost   context.CancelCauseFunc
	expiry time.Time // by this replica's clock
}

func newLeases(s store.Store, clk clock.WithTicker, ttl time.Duration, log logr.Logger) *leases {
	return &leases{store: s, clock: clk, ttl: ttl, log: log, held: map[*heldLease]struct{}{}}
}

// acquire takes a thread's lease and keeps it until release is called. lost is called when another
// holder has it, or when it could not be renewed in time.
func (l *leases) acquire(ctx context.Context, threadID, owner string, lost context.CancelCauseFunc) (*store.Fence, func(), error) {
	expiry := l.clock.Now().Add(l.ttl)
	fence, err := l.store.Acquire(ctx, threadID, owner, l.ttl)
	if err != nil {
		return nil, nil, err
	}
	h := &heldLease{fence: fence, lost: lost, expiry: expiry}
	l.mu.Lock()
	l.held[h] = struct{}{}
	l.mu.Unlock()
	return fence, func() { l.release(ctx, h) }, nil
}

func (l *leases) release(ctx context.Context, h *heldLease) {
	l.mu.Lock()
	delete(l.held, h)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	// Not given back, it runs out by itself.
	if err := l.store.Release(ctx, h.fence); err != nil && !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrNotFound) {
		l.log.Error(err, "cannot give back a thread's lease", "thread", h.fence.ThreadID)
	}
}

func (l *leases) renewLoop(ctx context.Context) {
	ticker := l.clock.NewTicker(l.ttl / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			l.renewAll(ctx)
		}
	}
}

func (l *leases) renewAll(ctx context.Context) {
	l.mu.Lock()
	all := make([]*heldLease, 0, len(l.held))
	for h := range l.held {
		all = append(all, h)
	}
	l.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(renewers)
	for _, h := range all {
		group.Go(func() error {
			l.renew(ctx, h)
			return nil
		})
	}
	_ = group.Wait() // renew reports by lost
}

// check finds out whether the lease of a thread is still this replica's, before its next write would.
func (l *leases) check(ctx context.Context, threadID string) error {
	l.mu.Lock()
	var of []*heldLease
	for h := range l.held {
		if h.fence.ThreadID == threadID {
			of = append(of, h)
		}
	}
	l.mu.Unlock()
	for _, h := range of {
		switch err := l.store.Renew(ctx, h.fence, l.ttl); {
		case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNotFound):
			h.lost(errLeaseLost)
		case err != nil:
			return err
		}
	}
	return nil
}

// renew touches a lease of which only this goroutine changes the expiry: rounds do not overlap.
func (l *leases) renew(ctx context.Context, h *heldLease) {
	expiry := l.clock.Now().Add(l.ttl)
	err := l.store.Renew(ctx, h.fence, l.ttl)
	switch {
	case err == nil:
		h.expiry = expiry
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNotFound):
		h.lost(errLeaseLost)
	case !l.clock.Now().Before(h.expiry):
		h.lost(errLeaseLost)
	}
}
