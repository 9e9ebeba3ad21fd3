package flow

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var refusals = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "skein_runtime_api_refused_total",
	Help: "Requests of the runtime API that were refused: with 429, because a user, a namespace or an address made too many, or with 431, because their headers were too large.",
})

func init() { metrics.Registry.MustRegister(refusals) }
