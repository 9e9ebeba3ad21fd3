package effects

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// TestMetrics covers EFF-07: the metrics and the log of a firing that waits, fails and succeeds.
func TestMetrics(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(noon)
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir(), Clock: clock})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = st.Close() })
	r := &runner{}
	w := NewWorker(Options{Store: st, Runner: r, Clock: clock, Log: logr.Discard(), Owner: "a", Workers: 1, ClaimTTL: time.Hour, Retry: Retry{Attempts: 3, First: time.Second}, Fault: func(string) {}})
	registry := prometheus.NewPedanticRegistry()
	g.Expect(registry.Register(w.Metrics())).To(Succeed())
	metric := func(name string) *dto.MetricFamily {
		all, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		for _, f := range all {
			if strings.HasSuffix(f.GetName(), name) {
				return f
			}
		}
		return &dto.MetricFamily{Metric: []*dto.Metric{{}}}
	}
	late := func() (uint64, float64) {
		h := metric("handler_lateness_seconds").Metric[0].GetHistogram()
		return h.GetSampleCount(), h.GetSampleSum()
	}
	target := toolTarget()
	target.Jitter = time.Second
	f := store.Firing{EffectID: "e", Due: noon.UnixMicro(), Namespace: "n", Target: target.Encode()}
	g.Expect(st.RecordFiring(t.Context(), f)).To(BeTrue())
	g.Expect(metric("firings_pending").Metric).To(ConsistOf(And(HaveField("Gauge.Value", HaveValue(Equal(1.0))), HaveField("Label", ConsistOf(HaveField("Value", HaveValue(Equal("n"))))))))
	attempt := func(err error) {
		t.Helper()
		r.err = err
		claimed, err := st.ClaimFirings(t.Context(), "a", time.Hour, map[string]int{"n": 1})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(claimed).To(HaveLen(1))
		w.fire(t.Context(), &claimed[0], &claim{epoch: claimed[0].Epoch})
	}

	attempt(&WaitError{errors.New("full")})
	g.Expect(metric("retries_total").Metric[0].GetCounter().GetValue()).To(BeZero(), "waiting is no attempt")
	n, _ := late()
	g.Expect(n).To(BeZero())

	clock.Step(5 * time.Second)
	attempt(errors.New("lost"))
	g.Expect(metric("retries_total").Metric[0].GetCounter().GetValue()).To(Equal(1.0))
	n, sum := late()
	g.Expect(n).To(BeEquivalentTo(1))
	g.Expect(sum).To(Equal(4.0), "without the jitter")

	clock.Step(5 * time.Second)
	attempt(nil)
	n, _ = late()
	g.Expect(n).To(BeEquivalentTo(1), "only the first attempt is late")
	g.Expect(metric("retries_total").Metric[0].GetCounter().GetValue()).To(Equal(1.0))
	g.Expect(metric("firings_pending").Metric[0].GetGauge().GetValue()).To(BeZero())

	ended, err := st.Firing(t.Context(), f.Key())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ended.Log).To(Equal("call 1\ncall 2\ncall 3\n"), "of all attempts")

	f.Due, f.Origin = noon.Add(-time.Hour).UnixMicro(), store.OriginBackfill
	g.Expect(st.RecordFiring(t.Context(), f)).To(BeTrue())
	attempt(nil)
	n, _ = late()
	g.Expect(n).To(BeEquivalentTo(1), "a backfill")
}
