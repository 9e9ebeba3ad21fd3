package scheduledeffect

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// lateness is the time from a firing's due time until it was recorded.
var lateness = prometheus.NewHistogram(prometheus.HistogramOpts{
	Name:    "skein_effect_lateness_seconds",
	Help:    "Time from an effect's due time until its firing was recorded.",
	Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300},
})

// skipped counts the due times that did not fire (EFF-07).
var skipped = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "skein_effect_skipped_total",
	Help: "Due times of ScheduledEffects that did not fire, by reason.",
}, []string{"namespace", "reason"})

func init() { metrics.Registry.MustRegister(lateness, skipped) }
