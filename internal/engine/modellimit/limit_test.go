package modellimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/modellimit"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

func TestLimit(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute) // machines may be busy
	RunSpecs(t, "Limits of models")
}

// busy counts how many calls are under way at once, and holds each until it is let go.
type busy struct {
	mu        sync.Mutex
	now, peak int
	begun     chan struct{}
	release   chan struct{}
}

func newBusy() *busy { return &busy{begun: make(chan struct{}, 100), release: make(chan struct{})} }

func (b *busy) Stream(ctx context.Context, _ model.Request, _ func(model.Delta)) (*model.Response, error) {
	b.mu.Lock()
	b.now++
	b.peak = max(b.peak, b.now)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.now--
		b.mu.Unlock()
	}()
	b.begun <- struct{}{}
	select {
	case <-b.release:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &model.Response{Usage: &model.Usage{InputTokens: 10, OutputTokens: 5}}, nil
}

// counting is a store that keeps what was asked of it.
type counting struct {
	modellimit.Permits
	mu     sync.Mutex
	taken  int
	tokens int64
}

func (c *counting) TakePermit(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	c.mu.Lock()
	c.taken++
	c.mu.Unlock()
	return c.Permits.TakePermit(ctx, r)
}

func (c *counting) ReturnPermit(ctx context.Context, namespace, name, id string, tokens int64) error {
	c.mu.Lock()
	c.tokens += tokens
	c.mu.Unlock()
	return c.Permits.ReturnPermit(ctx, namespace, name, id, tokens)
}

var _ = Describe("Limits", Label("AGT-06"), func() {
	var permits *counting
	BeforeEach(func(ctx SpecContext) {
		s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		permits = &counting{Permits: s}
	})
	ignore := func(model.Delta) {}

	It("hold over replicas, and every call gets its turn", func(ctx SpecContext) {
		b := newBusy()
		two := &skeinv1.ModelLimits{MaxConcurrent: 2}
		var group sync.WaitGroup
		for range 2 { // replicas share the store alone
			c := modellimit.New(permits, clock.RealClock{}).Wrap(b, "ns", "m", two)
			for range 4 {
				group.Go(func() {
					defer GinkgoRecover()
					_, err := c.Stream(ctx, model.Request{}, ignore)
					Expect(err).NotTo(HaveOccurred())
				})
			}
		}
		for range 8 {
			Eventually(b.begun).Should(Receive())
			b.release <- struct{}{}
		}
		group.Wait()
		Expect(b.peak).To(BeNumerically("<=", 2))
		Expect(permits.tokens).To(Equal(int64(8 * 15)))
	})

	It("are polled in the store by one waiting call of each replica", func(ctx SpecContext) {
		b := newBusy()
		still := clocktesting.NewFakeClock(time.Now()) // the one that waits asks again after a second: it does not come
		c := modellimit.New(permits, still).Wrap(b, "ns", "m", &skeinv1.ModelLimits{MaxConcurrent: 1})
		waiting, cancel := context.WithCancelCause(ctx)
		stopped := errors.New("stopped")
		results := make(chan error, 51)
		for range 51 {
			go func() {
				_, err := c.Stream(waiting, model.Request{}, ignore)
				results <- err
			}()
		}
		Eventually(b.begun).Should(Receive())
		cancel(stopped)
		for range 51 {
			Eventually(results).Should(Receive(MatchError(stopped)))
		}
		permits.mu.Lock()
		defer permits.mu.Unlock()
		Expect(permits.taken).To(BeNumerically("<", 10), "not each for itself")
	})

	It("without values leave the client as it is", func() {
		b := newBusy()
		for _, none := range []*skeinv1.ModelLimits{nil, {}} {
			Expect(modellimit.New(permits, clock.RealClock{}).Wrap(b, "ns", "m", none)).To(BeIdenticalTo(model.Client(b)))
		}
	})
})
