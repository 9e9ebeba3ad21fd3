package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

func TestManager(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "Manager")
}

var _ = Describe("/readyz", Label("K8S-06"), func() {
	It("fails while the database is away, and recovers", func(ctx SpecContext) {
		database, err := pgtest.Start(ctx, pgtest.Options{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(database.Stop()).To(Succeed()) })
		name, err := database.NewDatabase(ctx, "")
		Expect(err).NotTo(HaveOccurred())
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: database.URL(name)})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })

		ready := &readiness{}
		told, stop := context.WithCancel(ctx)
		defer stop()
		checks := readyChecks(ready, &data{store: s}, &draining{begun: told})
		// status is what controller-runtime answers with these checks.
		status := func() int {
			w := httptest.NewRecorder()
			(&healthz.Handler{Checks: checks}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			return w.Code
		}
		Expect(status()).To(Equal(http.StatusInternalServerError), "its caches are not filled")
		ready.filled.Store(true)
		Expect(status()).To(Equal(http.StatusOK))

		Expect(database.Down()).To(Succeed())
		Expect(status()).To(Equal(http.StatusInternalServerError))
		Expect(database.Up(ctx)).To(Succeed())
		Eventually(status).Should(Equal(http.StatusOK))

		stop()
		Expect(status()).To(Equal(http.StatusInternalServerError), "it is stopping")
	}, SpecTimeout(5*time.Minute))
})

// pools is a cache that has SandboxPools only.
type pools struct {
	cache.Cache
	reader client.Reader
}

func (p pools) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return p.reader.List(ctx, list, o...)
}

var _ = Describe("The metrics of pools", Label("K8S-06", "COD-09"), func() {
	// shown returns the values of skein_sandbox_pool_sandboxes, by namespace/pool/state.
	shown := func() map[string]float64 {
		GinkgoHelper()
		registry := prometheus.NewRegistry()
		Expect(metrics.Register(registry)).To(Succeed())
		families, err := registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		got := map[string]float64{}
		for _, f := range families {
			if f.GetName() != "skein_sandbox_pool_sandboxes" {
				continue
			}
			for _, m := range f.Metric {
				labels := map[string]string{}
				for _, l := range m.Label {
					labels[l.GetName()] = l.GetValue()
				}
				got[labels["namespace"]+"/"+labels["pool"]+"/"+labels["state"]] = m.GetGauge().GetValue()
			}
		}
		return got
	}

	It("say what the pools have, and forget those that are gone", func(ctx SpecContext) {
		scheme := runtime.NewScheme()
		Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
		pool := &skeinv1.SandboxPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"},
			Status:     skeinv1.SandboxPoolStatus{DesiredWarm: 4, Warm: 3, Claimed: 5, Starting: 1, Failing: 2},
		}
		other := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}, Status: skeinv1.SandboxPoolStatus{Warm: 7}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool, other).WithStatusSubresource(&skeinv1.SandboxPool{}).Build()
		s := &statistics{cache: pools{reader: c}}
		Expect(s.measurePools(ctx)).To(Succeed())
		Expect(shown()).To(And(
			HaveKeyWithValue("shop/default/desired", 4.0), HaveKeyWithValue("shop/default/warm", 3.0), HaveKeyWithValue("shop/default/claimed", 5.0),
			HaveKeyWithValue("shop/default/starting", 1.0), HaveKeyWithValue("shop/default/failing", 2.0), HaveKeyWithValue("shop/other/warm", 7.0)))
		Expect(c.Delete(ctx, other)).To(Succeed())
		Expect(s.measurePools(ctx)).To(Succeed())
		Expect(shown()).To(And(HaveKey("shop/default/warm"), Not(HaveKey("shop/other/warm"))))
	})
})
