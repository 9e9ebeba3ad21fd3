package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

// ErrLeaseLost is the cause with which the context of a thread ends when another holder has its lease. ErrLeaseExpired, which wraps it,
// is the cause when the lease could not be renewed in time, so that another holder may take it.
var (
	ErrLeaseLost    = errors.New("the thread's lease was lost")
	ErrLeaseExpired = fmt.Errorf("%w: the database did not confirm its renewal before it would expire", ErrLeaseLost)
)

const (
	// renewers is how many leases are renewed at once, so that their writes share commits.
	renewers = 32
	// releaseTimeout bounds the write that releases a lease after the context of its holder has ended.
	releaseTimeout = 5 * time.Second
	// marginShare is the share of its term by which a holder gives up a lease before it expires, since the clocks of the holder and of
	// the database can run at slightly different speeds, and ending takes time.
	marginShare = 15
)

// Leases acquires leases of threads, and renews them from one goroutine after each third of their term. The clock of this process alone
// decides when a lease that was not renewed is over: a database that does not answer cannot delay that. It is safe for concurrent use.
type Leases struct {
	store store.Store
	clock clock.WithTickerAndDelayedExecution
	ttl   time.Duration
	log   logr.Logger

	mu   sync.Mutex
	held map[*heldLease]struct{}
}

type heldLease struct {
	fence *store.Fence
	lost  context.CancelCauseFunc
	// life ends when the lease is released or lost. Renewals end with it.
	life context.Context
	end  context.CancelFunc

	expiry clock.Timer // calls expire

	mu   sync.Mutex
	over bool // it was released or lost
}

// lose reports to the holder that the lease is lost, unless it was released or lost before.
func (h *heldLease) lose(cause error) {
	if h.finish() {
		h.lost(cause)
	}
}

// finish ends the renewals. It reports whether the lease was held until now.
func (h *heldLease) finish() bool {
	if !h.endOnce() {
		return false
	}
	h.expiry.Stop()
	return true
}

// endOnce records that the lease is released or lost, and reports whether it was held until now.
func (h *heldLease) endOnce() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return false
	}
	h.over = true
	h.end()
	return true
}

// expire is lose for the timer, which may not be stopped while it fires.
func (h *heldLease) expire() {
	if h.endOnce() {
		h.lost(ErrLeaseExpired)
	}
}

// extend puts off the expiry. For a lease that is over it does nothing, because expire then does nothing.
func (h *heldLease) extend(left time.Duration) { h.expiry.Reset(left) }

// NewLeases returns leases with a term of ttl.
func NewLeases(s store.Store, clk clock.WithTickerAndDelayedExecution, ttl time.Duration, log logr.Logger) *Leases {
	return &Leases{store: s, clock: clk, ttl: ttl, log: log, held: map[*heldLease]struct{}{}}
}

// Acquire takes a thread's lease and renews it until release is called. lost is called with ErrLeaseLost when another holder has the
// lease, and with ErrLeaseExpired shortly before others can take it because it was not renewed. Errors are those of store.Acquire, and
// ErrLeaseExpired when the answer took as long as the lease lasts.
func (l *Leases) Acquire(ctx context.Context, threadID, owner string, lost context.CancelCauseFunc) (fence *store.Fence, release func(), err error) {
	asked := l.clock.Now()
	fence, err = l.store.Acquire(ctx, threadID, owner, l.ttl)
	if err != nil {
		return nil, nil, err
	}
	h := &heldLease{fence: fence, lost: lost}
	h.life, h.end = context.WithCancel(context.Background())
	release = func() { l.release(ctx, h) }
	left := l.remaining(asked)
	h.expiry = l.clock.AfterFunc(max(left, time.Nanosecond), h.expire)
	if left <= 0 {
		h.finish() // without telling the holder, who gets the error
		release()
		return nil, nil, fmt.Errorf("thread %s: %w", threadID, ErrLeaseExpired)
	}
	l.mu.Lock()
	l.held[h] = struct{}{}
	l.mu.Unlock()
	return fence, release, nil
}

// remaining returns for how long a holder may act on a lease that it asked for, or asked to renew, at a time. The database counts the term
// from when it hears of it, which is later.
func (l *Leases) remaining(asked time.Time) time.Duration {
	return l.ttl - l.ttl/marginShare - l.clock.Since(asked)
}

func (l *Leases) release(ctx context.Context, h *heldLease) {
	h.finish()
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
			h.lose(ErrLeaseLost)
		case err != nil:
			return err
		}
	}
	return nil
}

// renew renews a lease. It returns when the lease is over, even if the database has not answered.
func (l *Leases) renew(ctx context.Context, h *heldLease) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	asked := l.clock.Now()
	switch err := l.store.Renew(ctx, h.fence, l.ttl); {
	case err == nil:
		if left := l.remaining(asked); left > 0 {
			h.extend(left)
		}
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNotFound):
		h.lose(ErrLeaseLost)
	}
}
