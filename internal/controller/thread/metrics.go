package thread

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// written counts the writes that K8S-07 limits.
var written = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "skein_thread_status_writes_total",
	Help: "Writes of Thread statuses to the API server.",
})

func init() { metrics.Registry.MustRegister(written) }
