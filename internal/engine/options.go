package engine

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Options of an Engine. Threads, Definitions, Children, Effects, Sandboxes, Models and Owner are required. The others have
// defaults.
type Options struct {
	Threads     *thread.Service
	Definitions ports.Definitions
	Children    ports.Children
	// ThreadObjects may be nil. Then no thread reads others or hands its context off.
	ThreadObjects ports.ThreadObjects
	Effects       ports.Effects
	Sandboxes     ports.Sandboxes
	Models        model.Factory
	// Network is what tools connect through. The default allows public addresses only.
	Network *outbound.Network
	// MCP keeps the sessions with MCP servers. By default the engine makes its own, over Network.
	MCP *mcptool.Servers
	// Clock is used for delays, batches and sweeps. The default is the real clock.
	Clock clock.WithTickerAndDelayedExecution
	// Owner names this replica in leases. No two running replicas may have the same name.
	Owner string
	// Workers is how many runs may be under way at once. The default is 1250. A fifth of the workers is reserved for
	// namespaces in which nothing runs yet.
	Workers int
	// NamespaceWorkers is how many runs of one namespace may be under way at once. 0 sets no separate limit.
	NamespaceWorkers int
	// Quotas returns the quotas of a namespace (K8S-11). nil means that there are none.
	Quotas func(namespace string) store.Quotas
	// Memory is what runs draw conversations and values from; nil is without limit.
	Memory *membudget.Budget
	// EffectWorkers is how many effects may be under way at once. The default is 64.
	EffectWorkers int
	// DefaultRetry says how to retry a firing whose handler could not run, or whose service failed. A handler that throws is not
	// retried. By default there are effects.DefaultAttempts attempts, and the second one comes after effects.DefaultBackoff.
	DefaultRetry effects.Retry
	// MissedFiring is called with each firing that could not begin in time, with the record of it, and whether that is new (EFF-07). By default
	// nothing is called.
	MissedFiring func(f *store.Firing, record store.EffectSkip, begins bool)
	Logger       logr.Logger
	// Redact removes the secrets of a namespace from a text. It is called before a text is cut, since it would not find a part
	// of a secret. The default returns the text unchanged.
	Redact func(namespace, text string) string
	// LeaseTTL is the time after which other replicas take over the threads and the effects of a lost replica. The default is
	// 15 s.
	LeaseTTL time.Duration
	// SweepInterval is the time between two searches for threads whose notifications or whose replica was lost. The default
	// is 15 s.
	SweepInterval time.Duration
	// HookRetry is the time until a hook for which there was no sandbox is tried again. It doubles with each try, up to two
	// minutes. The default is 1 s.
	HookRetry time.Duration
	// Limits of runs.
	Limits Limits
	// PostRun are tasks that follow every run. There are none by default.
	PostRun []postrun.Task
	// PostRunWorkers is the number of runs whose tasks may be under way at once. The default is 64.
	PostRunWorkers int
	// PostRunTimeout bounds the tasks of one run. The default is a minute.
	PostRunTimeout time.Duration
	// CompactionTimeout bounds the call of a model that sums up older messages. The default is two minutes.
	CompactionTimeout time.Duration
	// Faults is called at named points around every durable write and outside call, for crash tests. crash_points_test.go
	// lists the points. It may panic within a run, and the engine handles that like a panic of its own.
	Faults func(point string)
}

// Limits of runs. A field that is 0 gets the default that its comment states.
type Limits struct {
	// Depth is how deep children may nest, where a root thread has depth 0. Default 5.
	Depth int
	// Children is how many living children one thread may have. Default 100.
	Children int
	// NamespaceChildren is how many living children the threads of one namespace may have together. Default 10000.
	NamespaceChildren int
	// ToolResultBytes is how much of a tool's result a model reads. Default 256 KiB.
	ToolResultBytes int
	// ContextMessages is how many of the newest messages a model reads. Default 5000.
	ContextMessages int
	// HookDepth is the longest chain of hooks in which each causes the next, within one run or from run to run. Default 4.
	HookDepth int
	// HookTries is how often a call of a hook for which there is no sandbox is tried. Default 20, which takes about half an
	// hour.
	HookTries int
	// Handoffs is how often one run may be handed over to another agent. Default 10.
	Handoffs int
	// PromptDepth is how deep prompts may call each other as tools. Default 5.
	PromptDepth int
	// ParallelCalls is how many calls of one step may be under way at once. Default 8.
	ParallelCalls int
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = ownclock.Clock{}
	}
	if o.Network == nil {
		o.Network = outbound.New(outbound.Policy{})
	}
	if o.MCP == nil {
		o.MCP = mcptool.New(mcptool.Options{Network: o.Network, Log: o.Logger, Redact: o.Redact, Memory: o.Memory})
	}
	if o.Redact == nil {
		o.Redact = func(_, text string) string { return text }
	}
	if o.MissedFiring == nil {
		o.MissedFiring = func(*store.Firing, store.EffectSkip, bool) {}
	}
	orDefault(&o.Workers, 1250)
	orDefault(&o.EffectWorkers, 64)
	orDefault(&o.DefaultRetry.Attempts, effects.DefaultAttempts)
	orDefault(&o.DefaultRetry.First, effects.DefaultBackoff)
	orDefault(&o.PostRunWorkers, 64)
	orDefault(&o.PostRunTimeout, time.Minute)
	orDefault(&o.CompactionTimeout, 2*time.Minute)
	orDefault(&o.LeaseTTL, 15*time.Second)
	orDefault(&o.SweepInterval, 15*time.Second)
	orDefault(&o.Limits.Depth, 5)
	orDefault(&o.Limits.Children, 100)
	orDefault(&o.Limits.NamespaceChildren, 10000)
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
