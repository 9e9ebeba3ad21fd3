package effects

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// swallowing is a store whose renewals of claims never return, whatever their context says.
type swallowing struct {
	store.Store
	asked chan struct{}
}

func (s swallowing) RenewFirings(context.Context, time.Duration, []store.FiringClaim) ([]store.FiringKey, error) {
	s.asked <- struct{}{}
	select {}
}

// causes is a Runner whose calls last until they are stopped, and say why they were.
type causes struct {
	Runner
	began chan struct{}
	cause chan error
}

func (r causes) CallTool(ctx context.Context, _ Call) error {
	r.began <- struct{}{}
	<-ctx.Done()
	r.cause <- context.Cause(ctx)
	return ctx.Err()
}

// TestClaimEndsByTheHoldersClock expects that a handler is stopped before another replica can claim its firing, although the database never
// answers (K8S-10).
func TestClaimEndsByTheHoldersClock(t *testing.T) {
	g := NewWithT(t)
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir()})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = st.Close() })
	g.Expect(st.RecordFiring(t.Context(), store.Firing{EffectID: "e", Due: 1, Namespace: "ns", Target: toolTarget().Encode()})).To(BeTrue())
	const ttl = 15 * time.Second
	clock := clocktesting.NewFakeClock(time.Now())
	s := swallowing{Store: st, asked: make(chan struct{}, 1)}
	r := causes{began: make(chan struct{}, 1), cause: make(chan error, 1)}
	w := NewWorker(Options{
		Store: s, Runner: r, Clock: clock, Log: logr.Discard(), Owner: "a", Workers: 1, ClaimTTL: ttl, Retry: Retry{Attempts: 3, First: time.Second},
		Fault: func(string) {},
	})
	go w.Run(t.Context())
	g.Eventually(r.began, time.Minute).Should(Receive())
	clock.Step(ttl / 3)
	g.Eventually(s.asked, time.Minute).Should(Receive())
	clock.Step(ttl/3*2 - 2*time.Second)
	g.Expect(r.cause).NotTo(Receive(), "2 s are left")
	clock.Step(time.Second)
	var cause error
	g.Eventually(r.cause, time.Minute).Should(Receive(&cause))
	g.Expect(cause).To(MatchError(store.ErrFiringLost))
	g.Expect(cause).To(MatchError(ContainSubstring("did not confirm the renewal of its claim")))
}
