package sandboxes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// How a thread got its sandbox pod.
const (
	foundOwn      = "own"      // the thread had one already, for example from before a restart
	foundWarm     = "warm"     // a warm pod was ready
	foundStarting = "starting" // a warm pod was about to be ready
	foundCold     = "cold"     // a new pod was created
)

// acquireBuckets are narrow around the budget of a claim, and reach as far as the time that a pod may take to start.
var acquireBuckets = []float64{0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
	0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 2.5, 5, 10, 60, 120}

// acquireFactor is the growth factor of native histogram buckets, for collectors that read them.
const acquireFactor = 1.02

// acquired measures the time until a thread had its pod, and answered the time until that pod returned its first
// result.
var (
	acquired = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "skein_sandbox_acquire_seconds",
		Help:    "Time until a thread was connected to its sandbox pod, by how it came by it.",
		Buckets: acquireBuckets,

		NativeHistogramBucketFactor: acquireFactor, NativeHistogramMaxBucketNumber: 1000,
	}, []string{"found"})
	answered = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "skein_sandbox_first_result_seconds",
		Help:    "Time from a thread's need of a sandbox pod to the first result of code in it, by how it came by the pod.",
		Buckets: acquireBuckets,

		NativeHistogramBucketFactor: acquireFactor, NativeHistogramMaxBucketNumber: 1000,
	}, []string{"found"})
)

func init() { metrics.Registry.MustRegister(acquired, answered) }

func observeAnswered(found string, since time.Time) {
	answered.WithLabelValues(found).Observe(time.Since(since).Seconds())
}

func observeAcquired(found string, since time.Time) {
	acquired.WithLabelValues(found).Observe(time.Since(since).Seconds())
}
