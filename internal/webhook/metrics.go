package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var sent = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "skein_webhook_attempts_total",
	Help: "Attempts to tell webhooks something, by event and by what became of the delivery: delivered, pending or dead.",
}, []string{"event", "status"})

func init() { metrics.Registry.MustRegister(sent) }
