package app

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/metrics"
)

// measureLoad registers metrics of how busy the workers are, and of the firings of effects.
func measureLoad(registry prometheus.Registerer, eng *engine.Engine) error {
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_engine_threads_running",
		Help: "Threads that this replica is running.",
	}, func() float64 { n, _ := eng.Load(); return float64(n) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_engine_threads_queued",
		Help: "Threads with something to do that wait for a worker of this replica.",
	}, func() float64 { _, n := eng.Load(); return float64(n) })
	return errors.Join(metrics.Register(registry), registry.Register(running), registry.Register(waiting), registry.Register(eng.EffectMetrics()), registry.Register(eng.NewerMetrics()))
}
