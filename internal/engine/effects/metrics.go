package effects

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-dev/skein/internal/store"
)

// collectTime bounds the reading of the store for a scrape.
const collectTime = 5 * time.Second

var pending = prometheus.NewDesc("skein_effect_firings_pending",
	"Firings of effects that are due and have not ended, by namespace. Each replica reports those of the whole store.", []string{"namespace"}, nil)

// Metrics are the metrics of a Worker. It implements prometheus.Collector.
type Metrics struct {
	store    store.FiringStore
	lateness prometheus.Histogram
	retries  *prometheus.CounterVec
	firings  *prometheus.CounterVec
}

func newMetrics(s store.FiringStore) *Metrics {
	return &Metrics{
		store: s,
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "skein_effect_handler_lateness_seconds",
			Help:    "Time from the due time of a firing, jitter included, until its first attempt began. Backfills are not counted.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300, 3600},
		}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_effect_retries_total",
			Help: "Attempts of firings that failed and are made again, by namespace. Waiting for a sandbox or a definition is none.",
		}, []string{"namespace"}),
		firings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_effect_firings_total",
			Help: "Firings of effects that have ended in this replica, by how.",
		}, []string{"namespace", "status"}),
	}
}

// countAttempt counts an attempt, by when it began and how it ended.
func (m *Metrics) countAttempt(f *store.Firing, t Target, began time.Time, end *store.FiringEnd) {
	if end.Waiting != "" {
		return
	}
	if f.Attempts == 1 && f.Origin != store.OriginBackfill {
		m.lateness.Observe(max(began.Sub(time.UnixMicro(f.Due))-t.Jitter, 0).Seconds())
	}
	if end.Status == store.FiringPending {
		m.retries.WithLabelValues(f.Namespace).Inc()
		return
	}
	m.firings.WithLabelValues(f.Namespace, string(end.Status)).Inc()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- pending
	m.lateness.Describe(ch)
	m.retries.Describe(ch)
	m.firings.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.lateness.Collect(ch)
	m.retries.Collect(ch)
	m.firings.Collect(ch)
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	counts, err := m.store.PendingFirings(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(pending, err)
		return
	}
	for namespace, n := range counts {
		ch <- prometheus.MustNewConstMetric(pending, prometheus.GaugeValue, float64(n), namespace)
	}
}
