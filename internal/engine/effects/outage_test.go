package effects

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
)

// lost is a store that cannot be reached until it is found.
type lost struct {
	store.Store
	found atomic.Bool
	looks atomic.Int64
}

func (s *lost) DueFirings(context.Context, string, int) (*store.DueSearch, error) {
	s.looks.Add(1)
	if s.found.Load() {
		return &store.DueSearch{All: true}, nil
	}
	return nil, store.ErrUnavailable
}

func (s *lost) ReleaseFirings(context.Context, string, ...store.FiringKey) error { return nil }

// TestOutage covers EFF-04: while the store is away, notifications do not add up to looks that all repeat.
func TestOutage(t *testing.T) {
	g := NewWithT(t)
	clk := testingclock.NewFakeClock(time.Now())
	st := &lost{}
	w := NewWorker(Options{
		Store: st, Clock: clk, Log: logr.Discard(), Owner: "a", Workers: 4, ClaimTTL: time.Hour, Retry: Retry{First: time.Second}, Fault: func(string) {},
	})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); w.Run(ctx) }()
	t.Cleanup(func() { stop(); <-over })
	g.Eventually(st.looks.Load, time.Minute).Should(BeEquivalentTo(1))
	for n := range 20 {
		w.Wake()
		g.Eventually(st.looks.Load, time.Minute).Should(BeEquivalentTo(n + 2))
	}
	g.Expect(clk.Waiters()).To(Equal(2), "the ticker and one retry")

	st.found.Store(true)
	clk.Step(2 * time.Second)
	g.Eventually(st.looks.Load, time.Minute).Should(BeEquivalentTo(22), "the retry itself, without a notification")
	g.Eventually(clk.Waiters, time.Minute).Should(Equal(1))
}

// partly is a store whose first search for due firings has not looked at all namespaces.
type partly struct {
	lost
	from  chan string
	found []store.DueFirings
}

func (s *partly) ClaimFirings(context.Context, string, time.Duration, map[string]int, ...store.FiringKey) ([]store.Firing, error) {
	return nil, nil
}

func (s *partly) DueFirings(ctx context.Context, from string, _ int) (*store.DueSearch, error) {
	select {
	case s.from <- from:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if from == "" {
		return &store.DueSearch{Due: s.found, From: "m", Next: time.Hour}, nil
	}
	return &store.DueSearch{Next: time.Hour}, nil
}

// TestSearchGoesOn covers EFF-02: a search that has not seen all namespaces, and leaves slots free, goes on from where it was, after a pause.
func TestSearchGoesOn(t *testing.T) {
	for name, found := range map[string][]store.DueFirings{"nothing found": nil, "fewer than there are slots": {{Namespace: "a", Count: 2}}} {
		t.Run(name, func(t *testing.T) { searchGoesOn(t, found) })
	}
}

func searchGoesOn(t *testing.T, found []store.DueFirings) {
	g := NewWithT(t)
	clk := testingclock.NewFakeClock(time.Now())
	st := &partly{from: make(chan string), found: found}
	w := NewWorker(Options{
		Store: st, Clock: clk, Log: logr.Discard(), Owner: "a", Workers: 4, ClaimTTL: 2 * time.Hour, Retry: Retry{First: time.Second}, Fault: func(string) {},
	})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); w.Run(ctx) }()
	t.Cleanup(func() { stop(); <-over })
	for _, from := range []string{"", "m", ""} {
		g.Eventually(st.from, time.Minute).Should(Receive(Equal(from)))
		g.Eventually(clk.Waiters, time.Minute).Should(Equal(2), "the ticker and the next look")
		g.Expect(st.from).NotTo(Receive())
		clk.Step(searchPause)
	}
}
