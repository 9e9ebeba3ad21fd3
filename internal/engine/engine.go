// Package engine runs threads. It takes a thread that has work, calls the model and the tools, and records every step
// before the next one uses it. It uses everything around it through the interfaces in ports.go, and knows neither
// Kubernetes nor HTTP.
//
// A run is a loop over the log. Package plan decides from the conversation alone what comes next, so a run that a crash cut
// off continues at the same place. A run that waits for a child holds no goroutine and no lease.
package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/lru"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/compat"
	"github.com/skein-dev/skein/internal/engine/dispatch"
	"github.com/skein-dev/skein/internal/engine/effectcode"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/engine/executions"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/engine/memory"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/quota"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/engine/run"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Engine runs threads. It is safe for concurrent use.
type Engine struct {
	opts      Options
	log       logr.Logger
	threads   *thread.Service
	store     store.Store
	queue     *schedule.Queue
	leases    *schedule.Leases
	env       *codeexec.Environment
	hooks     *hooks.Service
	endpoints *endpoints.Service
	effects   *effects.Worker
	postRun   *postrun.Worker
	related   *related.Service // nil where no threads can be made
	timers    *schedule.Timers
	quotas    *quota.Quotas
	stops     *stop.Service
	dispatch  *dispatch.Dispatcher
	memory    *memory.Service
	// executions makes executions of code and tools, in runs and outside of them.
	executions *executions.Service
	// runs executes runs.
	runs *run.Service
	// approvals lists and decides calls that wait for approval.
	approvals *approval.Service
	// compat is the store of the engine, which leaves out what only a newer release knows.
	compat *compat.Store
	// life ends with the context of Start. Work that continues after its own context has ended uses it.
	life  context.Context
	die   context.CancelFunc
	drain drain

	// recent keeps the conversations of threads whose runs have ended.
	recent *transcript.Cache
	// active are the threads that this replica works for at present.
	active *activethreads.Threads
}

// New checks the options and returns an engine. The engine does nothing until Start is called.
func New(o Options) (*Engine, error) {
	o.setDefaults()
	switch {
	case o.Threads == nil, o.Definitions == nil, o.Children == nil, o.Effects == nil, o.Sandboxes == nil, o.Models == nil:
		return nil, errors.New("engine: Threads, Definitions, Children, Effects, Sandboxes and Models are required")
	case o.Owner == "":
		return nil, errors.New("engine: Owner is required: set a name that no other running replica has")
	}
	e := &Engine{
		opts:    o,
		log:     o.Logger.WithName("engine"),
		threads: o.Threads,
		compat:  compat.New(o.Threads.Store(), o.Logger.WithName("engine")),

		recent: transcript.NewCache(cacheBytes(o.Memory)),

		active: activethreads.New(),
		drain:  drain{started: make(chan struct{})},
	}
	e.store = e.compat
	e.life, e.die = context.WithCancel(context.Background())
	e.queue = schedule.NewQueue(schedule.Options{
		Store: e.store, Clock: o.Clock, Log: e.log, Workers: o.Workers, NamespaceWorkers: o.NamespaceWorkers,
	})
	e.leases = schedule.NewLeases(e.store, o.Clock, o.LeaseTTL, e.log)
	e.env = &codeexec.Environment{
		Threads: o.Threads, Store: e.store, Definitions: o.Definitions, Sandboxes: o.Sandboxes, Network: o.Network, MCP: o.MCP, Clock: o.Clock, Log: e.log,
		Schemas: lru.New(maxDescribed), Memory: o.Memory, Redact: o.Redact, Fault: e.fault,
	}
	e.postRun = postrun.NewWorker(postrun.Options{
		Store: e.store, Clock: o.Clock, Log: e.log.WithName("post-run"), Tasks: o.PostRun, Workers: o.PostRunWorkers, Timeout: o.PostRunTimeout,
		SweepInterval: o.SweepInterval, LeaseTTL: o.LeaseTTL, Attach: e.active.AttachUntilPurged, Redact: o.Redact, Fault: e.fault,
	})
	e.timers = schedule.NewTimers(e.store, o.Clock, o.SweepInterval, e.queue.Add, e.log)
	e.stops = stop.New(stop.Options{
		Store: e.store, Threads: o.Threads, Definitions: o.Definitions, Children: o.Children, Runs: runsPort{engine: e}, Active: e.active, Leases: e.leases, PostRun: e.postRun,
		Log: e.log, Owner: o.Owner, ContextMessages: o.Limits.ContextMessages, Now: e.now, Fault: e.fault,
	})
	e.quotas = quota.New(quota.Options{Store: e.store, Limits: o.Quotas, Clock: o.Clock, Log: e.log.WithName("quotas"), Wake: e.Wake})
	e.hooks = hooks.New(hooks.Options{
		Store: e.store, Definitions: o.Definitions, Executions: hookExecutions{engine: e}, Log: e.log, Now: e.now, Expect: e.timers.Expect, Redact: o.Redact,
		Fault: e.fault, Depth: o.Limits.HookDepth, Tries: o.Limits.HookTries, Retry: o.HookRetry,
	})
	e.related = newRelated(o, e.hooks.ThreadCreated, e.fault)
	e.memory = memory.New(memory.Options{Store: e.store, Definitions: o.Definitions, Models: o.Models, Redact: o.Redact, Log: e.log})
	e.executions = executions.New(executions.Options{
		Threads: o.Threads, Store: e.store, Definitions: o.Definitions, Children: o.Children, Effects: o.Effects, Env: e.env, Hooks: e.hooks, Active: e.active,
		Memory: e.memory, Related: e.related, Clock: o.Clock, Log: e.log, Redact: o.Redact, Terminate: e.stops.Terminate, Now: e.now, Fault: e.fault,
		Limits: executions.Limits{
			Depth: o.Limits.Depth, Children: o.Limits.Children, NamespaceChildren: o.Limits.NamespaceChildren, Handoffs: o.Limits.Handoffs, HookDepth: o.Limits.HookDepth,
		},
	})
	e.endpoints = endpoints.New(endpoints.Options{Store: e.store, Definitions: o.Definitions, Executions: e.executions, Log: e.log})
	runner := effectcode.New(effectcode.Options{
		Threads: o.Threads, Store: e.store, Definitions: o.Definitions, Env: e.env, Executions: e.executions, Active: e.active, Clock: o.Clock, Redact: o.Redact,
		Queue: e.stops.Queue, Fault: e.fault,
	})
	e.effects = effects.NewWorker(effects.Options{
		Store: e.store, Definitions: o.Definitions, Runner: runner, Clock: o.Clock, Log: e.log.WithName("effects"), Owner: o.Owner,
		Workers: o.EffectWorkers, ClaimTTL: o.LeaseTTL, Retry: o.DefaultRetry, Fault: e.fault, Missed: o.MissedFiring,
	})
	e.runs = run.New(run.Options{
		Store: e.store, Threads: o.Threads, Definitions: o.Definitions, Models: o.Models, Executions: e.executions, Env: e.env, Hooks: e.hooks, Stops: e.stops,
		Quotas: e.quotas, PostRun: e.postRun, Queue: e.queue, Recent: e.recent, Active: e.active, Memory: o.Memory, Clock: o.Clock, Log: e.log,
		CompactionTimeout: o.CompactionTimeout, Life: e.life, Now: e.now, Expect: e.timers.Expect, Redact: o.Redact, Interrupted: e.drain.checkInterrupted, Fault: e.fault,
		Limits: run.Limits{
			ToolResultBytes: o.Limits.ToolResultBytes, ContextMessages: o.Limits.ContextMessages, PromptDepth: o.Limits.PromptDepth, ParallelCalls: o.Limits.ParallelCalls,
		},
	})
	e.dispatch = dispatch.New(dispatch.Options{
		Store: e.store, Compat: e.compat, Queue: e.queue, Leases: e.leases, Active: e.active, Stops: e.stops, Quotas: e.quotas, Effects: e.effects, PostRun: e.postRun,
		Recent: e.recent, Clock: o.Clock, Log: e.log, Owner: o.Owner, LeaseTTL: o.LeaseTTL, SweepInterval: o.SweepInterval,
		Next: e.doNext, Interrupted: e.drain.checkInterrupted, Fault: e.fault,
	})
	e.approvals = approval.New(e.store, e.now, e.fault)
	return e, nil
}

// cacheBytes returns how large the cache of conversations may be: an eighth of the budget, beside the budget.
func cacheBytes(b *membudget.Budget) int {
	if b == nil {
		return transcript.CacheBytes
	}
	return min(transcript.CacheBytes, int(b.Total()/8))
}

const (
	// maxDescribed is how many schemas of tools' code are kept in memory.
	maxDescribed = 4096
)

// NeedLeaderElection returns false, because every replica runs threads.
func (e *Engine) NeedLeaderElection() bool { return false }

// Start runs threads until ctx ends. It returns when this replica has released all of them. Another replica, or the next
// process, continues the runs that were under way.
func (e *Engine) Start(ctx context.Context) error {
	stop := e.store.Subscribe(e.dispatch.Notify)
	defer stop()

	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){
		e.leases.Run, e.dispatch.Sweep, e.effects.Run, e.timers.Run, e.quotas.Run, e.postRun.Sweep, e.dispatch.Observe, e.dispatch.TakeUp, e.dispatch.Hear,
	} {
		loops.Go(func() { loop(ctx) })
	}
	if e.related != nil {
		loops.Go(func() { e.related.Run(ctx) })
	}
	e.drain.working.Go(func() { e.dispatch.Dispatch(ctx) })
	// Runs that end while this replica drains hand over their tasks themselves.
	e.drain.working.Go(func() { e.postRun.Run(ctx) })
	close(e.drain.started)
	<-ctx.Done()
	e.queue.ShutDown()
	e.active.CancelAll(cancelcause.ErrShutdown)
	e.die()
	loops.Wait()
	e.drain.working.Wait()
	return nil
}

// Wake queues a thread that may have work, for example because its definitions became ready.
func (e *Engine) Wake(threadID string) { e.dispatch.Wake(threadID) }

// WakeRefused queues a thread that could not run when it was tried last, because its definitions were not ready or a quota had no room, or
// that is being tried. It queues no other thread.
func (e *Engine) WakeRefused(threadID string) { e.dispatch.WakeRefused(threadID) }

// Load returns how many threads this replica runs, and how many wait for a worker.
func (e *Engine) Load() (running, waiting int) { return e.queue.Load() }

// NewerMetrics returns the metric of what is left for newer replicas.
func (e *Engine) NewerMetrics() prometheus.Collector { return e.compat.Metrics() }

// ServeEndpoint runs the ThreadEndpoint that a request to a thread belongs to (END-01), and sends its answer. Its errors are
// those of endpoints.Service.Serve.
func (e *Engine) ServeEndpoint(ctx context.Context, threadID string, req endpoints.Request, to endpoints.Answer) error {
	return e.endpoints.Serve(ctx, threadID, req, to)
}

// MessageHooks returns the hooks that apply when a message is written from outside of a run (HOK-01). It returns nil
// when the agent of the thread has no such hooks or cannot be resolved.
func (e *Engine) MessageHooks(ctx context.Context, t *store.Thread) thread.MessageHooks {
	return e.hooks.MessageHooks(ctx, t)
}

// ThreadCreated returns the first inbox items of a new thread: the call of after_thread_created. It returns the item
// also when the agent cannot be resolved yet. Whether the agent has that hook is then decided once the agent can be
// resolved.
func (e *Engine) ThreadCreated(ctx context.Context, namespace, agent string) []store.InboxItem {
	return e.hooks.ThreadCreated(ctx, namespace, agent)
}

// EffectMetrics returns the metrics of the firings of effects.
func (e *Engine) EffectMetrics() prometheus.Collector { return e.effects.Metrics() }

// WakeEffects makes the engine look for firings of effects, because one was recorded.
func (e *Engine) WakeEffects() { e.effects.Wake() }

// Approvals returns a page of the calls of a thread's run that wait for approval, or were decided on and are about to be made, in the
// order in which they were requested. more reports that others follow.
func (e *Engine) Approvals(ctx context.Context, threadID string, p approval.Page) (calls []approval.Call, more bool, err error) {
	return e.approvals.List(ctx, threadID, p)
}

// Decide approves or refuses a call that waits for approval, durably, and returns the call as it was decided. Repeating a decision
// returns the first one. The error is an *approval.DecidedError for another decision, a *definition.UnknownError for a call that does
// not wait, and a *thread.InvalidError for arguments that the tool does not accept.
func (e *Engine) Decide(ctx context.Context, threadID, callID string, d store.Approval) (*approval.Call, error) {
	return e.approvals.Decide(ctx, threadID, callID, d)
}

// now returns the time in microseconds since 1970.
func (e *Engine) now() int64 { return e.opts.Clock.Now().UnixMicro() }

// fault marks a point around a durable write or an outside call, for crash tests.
func (e *Engine) fault(point string) {
	if e.opts.Faults != nil {
		e.opts.Faults(point)
	}
}
