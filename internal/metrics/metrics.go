// Package metrics has the Prometheus metrics of what runs, models, tools and the store do. Each series has few labels: namespaces,
// models and tools, of which a bounded number have series of their own, and never threads. Some packages have metrics of their own,
// beside what these measure. docs/metrics.md lists all of them.
package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	runs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_runs_total",
		Help: "Runs that have ended in this replica, by how.",
	}, []string{"namespace", "status"})
	runSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "skein_run_duration_seconds",
		Help:    "Time from the beginning of a run to its end, with what it waited.",
		Buckets: []float64{.05, .25, 1, 5, 15, 60, 300, 1800, 7200, 86400},
	}, []string{"status"})
	modelCalls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_model_calls_total",
		Help: "Calls of models, with their retries counted once, by outcome: success, or the kind of failure.",
	}, []string{"namespace", "model", "provider", "outcome"})
	modelSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "skein_model_call_duration_seconds",
		Help:    "Time until the answer of a model was complete, with retries and waiting for its limits.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
	}, []string{"namespace", "model", "provider"})
	modelTokens = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_model_tokens_total",
		Help: "Tokens as providers count them. Type cached is a part of input, and reasoning a part of output.",
	}, []string{"namespace", "model", "type"})
	modelCost = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_model_cost_total",
		Help: "Cost of calls of models in US dollars, by spec.pricing.",
	}, []string{"namespace", "model"})
	toolCalls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_tool_calls_total",
		Help: "Calls of tools, by what became of them. The tool is (unknown) where a model has made a name up.",
	}, []string{"namespace", "tool", "status"})
	toolSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "skein_tool_call_duration_seconds",
		Help:    "Time that calls of tools took.",
		Buckets: []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300},
	}, []string{"status"})
	// LeaseLosses counts threads that this replica worked for when another one took them over.
	LeaseLosses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "skein_engine_lease_losses_total",
		Help: "Threads that this replica worked for when it lost their lease.",
	})
	commitSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "skein_store_commit_duration_seconds",
		Help:    "Time that commits of the store took, with all transactions in them.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	})
	commitSize = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "skein_store_commit_transactions",
		Help:    "Transactions that share one commit of the store.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
	})
	// Purges counts threads whose data was removed.
	Purges = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "skein_thread_purges_total",
		Help: "Threads whose stored data was removed.",
	})
	poolSandboxes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "skein_sandbox_pool_sandboxes",
		Help: "Sandboxes of a SandboxPool by state: desired, which is how many are to be warm, warm, claimed, starting or failing.",
	}, []string{"namespace", "pool", "state"})
)

// Register adds the metrics to a registry. It can be repeated.
func Register(registry prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		runs, runSeconds, modelCalls, modelSeconds, modelTokens, modelCost, toolCalls, toolSeconds, LeaseLosses, commitSeconds, commitSize, Purges,
		inboxOldest, inboxItems, storeBytes, contentsBytes, storeRows, threadsTotal, threadsNotReady, poolSandboxes,
	} {
		var again prometheus.AlreadyRegisteredError
		if err := registry.Register(c); err != nil && !errors.As(err, &again) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// The most that have series of their own. What comes later is counted under the name "(other)".
var (
	namespaces = newNames(1000)
	models     = newNames(1000)
	tools      = newNames(2000)
)

// RunEnded counts a run that has ended.
func RunEnded(namespace, status string, took time.Duration) {
	runs.WithLabelValues(namespaces.of(namespace), status).Inc()
	runSeconds.WithLabelValues(status).Observe(took.Seconds())
}

// ModelCall is a call of a model that is over.
type ModelCall struct {
	Namespace, Model, Provider string
	Outcome                    string // success, or the kind of failure
	Took                       time.Duration
	Input, Output              int64 // tokens
	Cached, Reasoning          int64 // parts of them
	Cost                       float64
}

// ModelCalled counts a call of a model.
func ModelCalled(c ModelCall) {
	ns, name := models.pair(c.Namespace, c.Model)
	modelCalls.WithLabelValues(ns, name, c.Provider, c.Outcome).Inc()
	modelSeconds.WithLabelValues(ns, name, c.Provider).Observe(c.Took.Seconds())
	for kind, n := range map[string]int64{"input": c.Input, "output": c.Output, "cached": c.Cached, "reasoning": c.Reasoning} {
		if n > 0 {
			modelTokens.WithLabelValues(ns, name, kind).Add(float64(n))
		}
	}
	if c.Cost > 0 {
		modelCost.WithLabelValues(ns, name).Add(c.Cost)
	}
}

// ToolCalled counts a call of a tool. The name is "" for a tool that does not exist.
func ToolCalled(namespace, name, status string, took time.Duration) {
	if name == "" {
		name = "(unknown)"
	}
	ns, name := tools.pair(namespace, name)
	toolCalls.WithLabelValues(ns, name, status).Inc()
	toolSeconds.WithLabelValues(status).Observe(took.Seconds())
}

// Committed counts a commit of the store with its transactions.
func Committed(transactions int, took time.Duration) {
	commitSize.Observe(float64(transactions))
	commitSeconds.Observe(took.Seconds())
}

// Pool sets how many sandboxes a pool has in each state.
func Pool(namespace, name string, states map[string]int32) {
	for state, n := range states {
		poolSandboxes.WithLabelValues(namespace, name, state).Set(float64(n))
	}
}

// Pools forgets all pools, before those that are left are set.
func Pools() {
	poolSandboxes.Reset()
}
