package threadquota

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/skein-dev/skein/internal/store"
)

var labels = []string{"namespace", "quota", "resource"}

var (
	hardGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "skein_quota_hard", Help: "What a namespace may use, by its ThreadQuotas. The cost is in US dollars.",
	}, labels)
	usedGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "skein_quota_used", Help: "What a namespace uses of what its ThreadQuotas bound. The cost is in US dollars.",
	}, labels)
)

func init() { metrics.Registry.MustRegister(hardGauge, usedGauge) }

// setGauges sets the gauges of a ThreadQuota to its amounts. It removes those of a ThreadQuota without amounts.
func (r *Reconciler) setGauges(namespace, name string, hard, used map[store.QuotaResource]int64) {
	for _, gauge := range []*prometheus.GaugeVec{hardGauge, usedGauge} {
		gauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "quota": name})
	}
	for resource, n := range hard {
		hardGauge.WithLabelValues(namespace, name, string(resource)).Set(amount(resource, n))
		usedGauge.WithLabelValues(namespace, name, string(resource)).Set(amount(resource, used[resource]))
	}
}

func amount(r store.QuotaResource, n int64) float64 {
	if r == store.QuotaCost {
		return float64(n) / 1e9
	}
	return float64(n)
}
