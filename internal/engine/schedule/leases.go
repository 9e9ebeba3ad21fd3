package schedule

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

// ErrLeaseLost is the cause with which the context of a thread ends when another holder has its lease, or when the lease could not be
// renewed in time.
var ErrLeaseLost = errors.New("the thread's lease was lost")

const (
	// renewers is how many leases are renewed at once, so that their writes share commits.
	renewers = 32
	// releaseTimeout bounds the write that releases a lease after the context of its holder has ended.
	releaseTimeout = 5 * time.Second
)

// Leases acquires leases of threads, and renews them from one goroutine after each third of their term. It is safe for concurrent use.
type Leases struct {
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

// NewLeases returns leases with a term of ttl.
func NewLeases(s store.Store, clk clock.WithTicker, ttl time.Duration, log logr.Logger) *Leases {
	return &Leases{store: s, clock: clk, ttl: ttl, log: log, held: map[*heldLease]struct{}{}}
}

// Acquire takes a thread's lease and renews it until release is called. lost is called with ErrLeaseLost when another holder has the
// lease, or when it could not be renewed in time. Errors are those of store.Acquire.
func (l *Leases) Acquire(ctx context.Context, threadID, owner string, lost context.CancelCauseFunc) (fence *store.Fence, release func(), err error) {
	expiry := l.clock.Now().Add(l.ttl)
	fence, err = l.store.Acquire(ctx, threadID, owner, l.ttl)
	if err != nil {
		return nil, nil, err
	}
	h := &heldLease{fence: fence, lost: lost, expiry: expiry}
	l.mu.Lock()
	l.held[h] = struct{}{}
	l.mu.Unlock()
	return fence, func() { l.release(ctx, h) }, nil
}

func (l *Leases) release(ctx context.Context, h *heldLease) {
	l.mu.Lock()
	delete(l.held, h)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	// A lease that is not released expires.
	if err := l.store.Release(ctx, h.fence); err != nil && !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrNotFound) {
		l.log.Error(err, "cannot release a thread's lease; it will expire", "thread", h.fence.ThreadID)
	}
}

// Run renews leases until ctx ends.
func (l *Leases) Run(ctx context.Context) {
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

func (l *Leases) renewAll(ctx context.Context) {
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

// Check finds out whether this replica still has the lease of a thread, and calls lost if it does not. Otherwise the next
// write would find out.
func (l *Leases) Check(ctx context.Context, threadID string) error {
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
			h.lost(ErrLeaseLost)
		case err != nil:
			return err
		}
	}
	return nil
}

// renew renews a lease. One round of renewals follows the other, so no other goroutine changes the expiry.
func (l *Leases) renew(ctx context.Context, h *heldLease) {
	expiry := l.clock.Now().Add(l.ttl)
	err := l.store.Renew(ctx, h.fence, l.ttl)
	switch {
	case err == nil:
		h.expiry = expiry
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNotFound):
		h.lost(ErrLeaseLost)
	case !l.clock.Now().Before(h.expiry):
		h.lost(ErrLeaseLost)
	}
}
