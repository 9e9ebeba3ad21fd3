package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// mended finds a Webhook that cannot be used for the first attempts.
type mended struct {
	unusable int
	target   *Target
}

func (m *mended) Find(context.Context, string, string, string) (*Target, error) {
	if m.unusable--; m.unusable >= 0 {
		return nil, errors.New("the Secret is missing")
	}
	return m.target, nil
}

var _ = Describe("the sender of what a store has", Label("EVT-05"), func() {
	// telling opens a store that has one delivery.
	telling := func(ctx context.Context, c clock.PassiveClock) store.Store {
		GinkgoHelper()
		s, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir(), Clock: c})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.Close)
		Expect(s.SetWebhooks(ctx, []store.Webhook{{ID: "w", Namespace: "ns", Name: "w", Events: []string{store.WebhookRunEnded}}})).To(Succeed())
		_, _, err = s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "ns", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		for _, status := range []store.RunStatus{store.RunRunning, store.RunSucceeded} {
			Expect(s.Apply(ctx, "t", nil, &store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: status}})).To(Succeed())
		}
		return s
	}
	// told returns the delivery of a store that has one.
	told := func(ctx context.Context, s store.Store) store.Delivery {
		GinkgoHelper()
		all, err := s.Deliveries(ctx, store.DeliveryQuery{Namespace: "ns"})
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(HaveLen(1))
		return all[0]
	}
	// answering runs a server with one answer, and returns it with a network that reaches it.
	answering := func(code int) (*outbound.Network, *Target) {
		GinkgoHelper()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		DeferCleanup(s.Close)
		u, err := url.Parse(s.URL)
		Expect(err).NotTo(HaveOccurred())
		open, err := outbound.ParseHosts([]string{"127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		network := outbound.New(outbound.Policy{Private: open})
		DeferCleanup(network.Close)
		return network, &Target{URL: u, Keys: [][]byte{key}, MaxAttempts: 8}
	}

	It("goes by the clock of the store, which a database on another machine has", func(ctx SpecContext) {
		process, database := clocktesting.NewFakeClock(time.Now()), clocktesting.NewFakeClock(time.Now().Add(time.Hour))
		outbox := telling(ctx, database)
		network, target := answering(http.StatusInternalServerError)
		sender := NewSender(Options{Store: outbox, Targets: &mended{target: target}, Network: network, Clock: process, Log: logr.Discard(), Owner: "a"})
		attempt := func() (d store.Delivery, wait time.Duration) {
			GinkgoHelper()
			wait = sender.round(ctx)
			sender.group.Wait()
			return told(ctx, outbox), wait
		}
		d, _ := attempt()
		Expect(d).To(HaveField("Attempts", 1), "it is due by the clock of the database")
		next := time.UnixMicro(d.AvailableAt).Sub(database.Now())
		process.Step(24 * time.Hour)
		d, wait := attempt()
		Expect(d).To(HaveField("Attempts", 1), "it is not due yet")
		Expect(wait).To(BeNumerically("~", next, time.Millisecond))
		database.Step(next)
		d, _ = attempt()
		Expect(d).To(HaveField("Attempts", 2))
	})

	It("counts no attempt while the Webhook cannot be used, and looks again soon", func(ctx SpecContext) {
		c := clocktesting.NewFakeClock(time.Now())
		outbox := telling(ctx, c)
		network, target := answering(http.StatusInternalServerError)
		sender := NewSender(Options{Store: outbox, Targets: &mended{8, target}, Network: network, Clock: c, Log: logr.Discard(), Owner: "a"})
		attempt := func() store.Delivery {
			GinkgoHelper()
			sender.round(ctx)
			sender.group.Wait()
			return told(ctx, outbox)
		}
		for range 8 {
			d := attempt()
			Expect(d).To(And(HaveField("Status", store.DeliveryPending), HaveField("Error", "the Secret is missing"), HaveField("Attempts", 0)))
			next := time.UnixMicro(d.AvailableAt)
			Expect(next).To(And(BeTemporally(">", c.Now()), BeTemporally("<=", c.Now().Add(2*time.Minute))))
			c.SetTime(next)
		}
		Expect(attempt()).To(And(HaveField("Status", store.DeliveryPending), HaveField("Code", 500), HaveField("Attempts", 1)), "it is mended, and its first attempt failed")
	})
})
