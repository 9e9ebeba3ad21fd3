package schedule_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/store"
)

const term = 15 * time.Second

// swallower is a store whose renewals never return once it swallows, even when their context ends.
type swallower struct {
	store.Store
	// acquired is called while a lease is being acquired.
	acquired func()
	swallows bool
	asked    chan struct{}
	released chan struct{}
}

func newSwallower() *swallower {
	return &swallower{asked: make(chan struct{}, 100), released: make(chan struct{}, 100)}
}

func (s *swallower) Acquire(_ context.Context, id, owner string, _ time.Duration) (*store.Fence, error) {
	if s.acquired != nil {
		s.acquired()
	}
	return &store.Fence{ThreadID: id, Owner: owner, Epoch: 1}, nil
}

func (s *swallower) Renew(context.Context, *store.Fence, time.Duration) error {
	s.asked <- struct{}{}
	if s.swallows {
		select {}
	}
	return nil
}

func (s *swallower) Release(context.Context, *store.Fence) error {
	s.released <- struct{}{}
	return nil
}

// holding returns a lease that is being renewed, and the context of its holder.
func holding(t *testing.T, s *swallower) (clock *clocktesting.FakeClock, ctx context.Context, release func()) {
	t.Helper()
	clock = clocktesting.NewFakeClock(time.Now())
	leases := schedule.NewLeases(s, clock, term, logr.Discard())
	go leases.Run(t.Context())
	waits(t, clock)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, release, err := leases.Acquire(ctx, "thread", "me", cancel)
	if err != nil {
		t.Fatal(err)
	}
	return clock, ctx, release
}

// waits returns when a timer of the clock is set.
func waits(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
	NewWithT(t).Eventually(clock.HasWaiters).WithTimeout(time.Minute).Should(BeTrue())
}

// TestLeaseEndsByTheHoldersClock expects that a holder stops before others can take the lease, although the database never answers its
// renewals (K8S-10).
func TestLeaseEndsByTheHoldersClock(t *testing.T) {
	s := newSwallower()
	s.swallows = true
	clock, ctx, _ := holding(t, s)
	clock.Step(term / 3)
	<-s.asked
	clock.Step(term/3*2 - 2*time.Second)
	if ctx.Err() != nil {
		t.Fatalf("the holder gave up with 2 s left: %v", context.Cause(ctx))
	}
	clock.Step(time.Second)
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the holder goes on although its lease can be taken")
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, schedule.ErrLeaseExpired) || !errors.Is(cause, schedule.ErrLeaseLost) || !strings.Contains(cause.Error(), "did not confirm its renewal") {
		t.Errorf("cause = %v", cause)
	}
}

// TestRenewedLeaseGoesOn expects that each renewal counts from when it was asked for.
func TestRenewedLeaseGoesOn(t *testing.T) {
	s := newSwallower()
	clock, ctx, release := holding(t, s)
	for range 12 {
		clock.Step(term / 3)
		<-s.asked
		waits(t, clock)
	}
	if ctx.Err() != nil {
		t.Fatalf("the lease was given up: %v", context.Cause(ctx))
	}
	release()
	<-s.released
	clock.Step(2 * term)
	if ctx.Err() != nil {
		t.Errorf("the holder of a released lease was told: %v", context.Cause(ctx))
	}
}

// TestLateLeaseIsNotHeld expects that a lease is given back whose answer took as long as it lasts.
func TestLateLeaseIsNotHeld(t *testing.T) {
	s := newSwallower()
	clock := clocktesting.NewFakeClock(time.Now())
	s.acquired = func() { clock.Step(term) }
	leases := schedule.NewLeases(s, clock, term, logr.Discard())
	if _, _, err := leases.Acquire(t.Context(), "thread", "me", func(error) {}); !errors.Is(err, schedule.ErrLeaseExpired) {
		t.Errorf("err = %v", err)
	}
	<-s.released
}
