package streams

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	openStreams = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_runtime_api_event_streams",
		Help: "Streams of events that are open.",
	})
	closedStreams = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_runtime_api_event_streams_closed_total",
		Help: "Streams of events that the server ended, by reason.",
	}, []string{"reason"})
)

func init() { metrics.Registry.MustRegister(openStreams, closedStreams) }
