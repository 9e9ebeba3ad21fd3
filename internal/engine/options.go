package engine

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Options of an Engine. Threads, Definitions, Children, Effects, Sandboxes, Models and Owner are needed;
// the rest have defaults.
type Options struct {
	Threads     *thread.Service
	Definitions Definitions
	Children    Children
	Effects     Effects
	Sandboxes   Sandboxes
	Models      model.Factory
	// Network is how tools reach others; public addresses alone when nil.
	Network *outbound.Network
	// MCP keeps the sessions with MCP servers; one of the engine's own, over Network, when nil.
	MCP *mcptool.Servers
	// Clock of delays, batches and sweeps; the real one when nil.
	Clock clock.WithTickerAndDelayedExecution
	// Owner names this replica in leases; no two living replicas may have the same.
	Owner string
	// Workers is how many runs may be under way at once: 1250 when 0. A fifth of them is kept for namespaces of
	// which nothing runs yet.
	Workers int
	// NamespaceWorkers is how many runs of one namespace may be under way at once: without a bound of its own when 0.
	NamespaceWorkers int
	// EffectWorkers is how many effects may be under way at once: 64 when 0.
	EffectWorkers int
	Logger        logr.Logger
	// Redact takes the secrets of a namespace out of a text, before a part of it is cut off; nil for as it is.
	Redact func(namespace, text string) string
	// LeaseTTL is after how long the threads and the effects of a lost replica pass to others: 15 s when 0.
	LeaseTTL time.Duration
	// SweepInterval is how often threads whose hints were lost, or whose holder was, are looked for: 15 s when 0.
	SweepInterval time.Duration
	// HookRetry is after how long a hook is tried again for which there was no sandbox; it doubles with each try, up to two
	// minutes: 1 s when 0.
	HookRetry time.Duration
	// Limits of runs.
	Limits Limits
	// PostRun are tasks that follow every run, none by default.
	PostRun []postrun.Task
	// PostRunWorkers is for how many runs the tasks may be under way at once: 64 when 0.
	PostRunWorkers int
	// PostRunTimeout bounds the tasks of one run: a minute when 0.
	PostRunTimeout time.Duration
	// Faults is called at named points around every durable write and outside call; crash tests use it.
	// crash_points_test.go has a list of them. It may panic within a run, which the engine takes for its own fault.
	Faults func(point string)
}

// Limits of runs; zero fields have defaults.
type Limits struct {
	// Depth is how deep children may nest, a root being 0: 5.
	Depth int
	// Children is how many living children one thread may have: 100.
	Children int
	// ToolResultBytes is how much of a tool's result a model gets to read: 256 KiB.
	ToolResultBytes int
	// ContextMessages is how many of the newest messages a model gets to read: 5000.
	ContextMessages int
	// HookDepth is how many hooks may lead to each other, be it within one another or from run to run: 4.
	HookDepth int
	// HookTries is how often it is tried to tell a hook for which there is no sandbox: 20, which is half an hour.
	HookTries int
	// Handoffs is how often one run may pass to another agent: 10.
	Handoffs int
	// PromptDepth is how deep prompts may call each other as tools: 5.
	PromptDepth int
	// ParallelCalls is how many calls of one step may be under way at once: 8.
	ParallelCalls int
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Network == nil {
		o.Network = outbound.New(outbound.Policy{})
	}
	if o.MCP == nil {
		o.MCP = mcptool.New(mcptool.Options{Network: o.Network, Log: o.Logger, Redact: o.Redact})
	}
	if o.Redact == nil {
		o.Redact = func(_, text string) string { return text }
	}
	orDefault(&o.Workers, 1250)
	orDefault(&o.EffectWorkers, 64)
	orDefault(&o.PostRunWorkers, 64)
	orDefault(&o.PostRunTimeout, time.Minute)
	orDefault(&o.LeaseTTL, 15*time.Second)
	orDefault(&o.SweepInterval, 15*time.Second)
	orDefault(&o.Limits.Depth, 5)
	orDefault(&o.Limits.Children, 100)
	orDefault(&o.Limits.ToolResultBytes, 256<<10)
	orDefault(&o.Limits.ContextMessages, 5000)
	orDefault(&o.Limits.ParallelCalls, 8)
	orDefault(&o.Limits.HookDepth, 4)
	orDefault(&o.Limits.HookTries, 20)
	orDefault(&o.HookRetry, time.Second)
	orDefault(&o.Limits.Handoffs, 10)
	orDefault(&o.Limits.PromptDepth, 5)
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}
