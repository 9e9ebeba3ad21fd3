package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// lateRenewals is a store that takes no renewal of a claim in time, and counts how often claims are asked for.
type lateRenewals struct {
	store.Store
	claims atomic.Int64
}

func (s *lateRenewals) RenewFirings(context.Context, time.Duration, []store.FiringClaim) ([]store.FiringKey, error) {
	return nil, store.ErrUnavailable
}

func (s *lateRenewals) ClaimFirings(ctx context.Context, owner string, ttl time.Duration, shares map[string]int, running ...store.FiringKey) ([]store.Firing, error) {
	s.claims.Add(1)
	return s.Store.ClaimFirings(ctx, owner, ttl, shares, running...)
}

// heldRenewal is a store that writes the first renewal of a claim only when what the attempt failed by is there, or does not come.
type heldRenewal struct {
	store.Store
	first, last       sync.Once
	begun, said, over chan struct{}
	writes            atomic.Int32
	kept              atomic.Pointer[store.Firing] // as it was when both were written; then over is closed
}

// both notes what there is once the first renewal and the first failure are written. No other attempt begins then.
func (s *heldRenewal) both(ctx context.Context, key store.FiringKey) {
	if s.writes.Add(1) < 2 {
		return
	}
	defer close(s.over)
	if f, err := s.Firing(ctx, key); err == nil {
		s.kept.Store(f)
	}
}

func (s *heldRenewal) RenewFirings(ctx context.Context, ttl time.Duration, claims []store.FiringClaim) (lost []store.FiringKey, err error) {
	first := false
	s.first.Do(func() {
		first = true
		close(s.begun)
		select {
		case <-s.said:
		case <-time.After(200 * time.Millisecond):
		}
	})
	lost, err = s.Store.RenewFirings(ctx, ttl, claims)
	if first {
		s.both(ctx, claims[0].Key)
	}
	return lost, err
}

func (s *heldRenewal) FinishFiring(ctx context.Context, end store.FiringEnd) error {
	err := s.Store.FinishFiring(ctx, end)
	s.last.Do(func() {
		close(s.said)
		s.both(ctx, end.Key)
	})
	return err
}
