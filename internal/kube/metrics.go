package kube

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The ways in which a thread comes by its sandbox pod.
const (
	foundOwn      = "own"      // it had one, from before a restart
	foundWarm     = "warm"     // one was ready
	foundStarting = "starting" // one was about to be ready
	foundCold     = "cold"     // one was made
)

// acquired is how long it took until a thread had its pod.
var acquired = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "skein_sandbox_acquire_seconds",
	Help:    "Time until a thread had its sandbox pod, by how it came by it.",
	Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60},
}, []string{"found"})

func init() { metrics.Registry.MustRegister(acquired) }

func observeAcquired(found string, since time.Time) {
	acquired.WithLabelValues(found).Observe(time.Since(since).Seconds())
}
