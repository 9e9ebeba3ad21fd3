// Package controller adds the controllers of all kinds to a manager.
package controller

import (
	"context"
	"errors"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/controller/definition"
	"github.com/skein-dev/skein/internal/controller/sandboxpool"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/controller/subagent"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/controller/threadquota"
	"github.com/skein-dev/skein/internal/controller/webhook"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/eventlimit"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

// Engine is the part of the engine that the controllers need.
type Engine interface {
	Wake(threadID string)
	WakeRefused(threadID string)
	WakeEffects()
	Abort(ctx context.Context, threadID, reason string)
	Terminate(ctx context.Context, threadID, reason string) error
	ThreadCreated(ctx context.Context, namespace, agent string) []store.InboxItem
	OpenReplies(ctx context.Context, child *store.Thread) ([]string, error)
	AnswerForLost(ctx context.Context, t *store.Thread, run *store.Run) error
}

// Pools says how SandboxPools are run.
type Pools struct {
	// ProcessMode means that pools create no pods.
	ProcessMode bool
	Settings    sandboxpod.Settings
	Authority   sandboxpool.Authority
	// ManagerNamespace is the namespace of the manager's pods. It is empty when the manager runs outside the cluster.
	ManagerNamespace string
	// Account is the manager's name at the API server.
	Account objects.Account
}

// Options are the options of the controllers.
type Options struct {
	Threads     *domain.Service
	Engine      Engine
	Definitions *definitions.Resolver
	Sandboxes   thread.Sandboxes
	Pools       Pools
	// Quotas returns the quotas of a namespace, and Effects counts the ScheduledEffects of one (K8S-11).
	Quotas  func(namespace string) store.Quotas
	Effects threadquota.Effects
	// GatewaysOff says that the manager has no listener for ThreadGateways and WebhookReceivers.
	GatewaysOff bool
	// Clock is used for due times and paces. nil means the real clock.
	Clock clock.PassiveClock
	// Secrets are removed from Events and statuses. It may be nil.
	Secrets *redact.Registry
	// Events bounds the Events of each namespace. nil means that they are not bounded.
	Events *eventlimit.Limiter
}

// Numbers of workers. Threads and effects have many, because they wait for the store and the API server most of the
// time.
const (
	definitionWorkers = 8
	threadWorkers     = 32
	subagentWorkers   = 8
	effectWorkers     = 16
	poolWorkers       = 4
	quotaWorkers      = 4
)

// recorderName is the reporting controller in Events.
const recorderName = "skein.dev/manager"

// Setup adds every controller to a manager. Its client must read its own writes, and its cache must have
// kube.Indexes.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = ownclock.Clock{}
	}
	recorder := o.Events.Recorder(redact.NewRecorder(mgr.GetEventRecorder(recorderName), o.Secrets))
	c := redact.NewClient(mgr.GetClient(), o.Secrets)
	return errors.Join(
		(&webhook.Reconciler{Webhooks: o.Definitions.Webhooks, Store: o.Threads.Store()}).Setup(mgr),
		definition.Setup(mgr, definition.Options{
			Client: c, Definitions: o.Definitions, ListenerOff: o.GatewaysOff, Recorder: recorder, Clock: o.Clock, Workers: definitionWorkers,
		}),
		thread.New(thread.Options{
			Client: c, Live: mgr.GetAPIReader(), Threads: o.Threads, Engine: o.Engine, Sandboxes: o.Sandboxes, Env: o.Definitions.Variables, Recorder: recorder, Clock: o.Clock, Workers: threadWorkers,
		}).Setup(mgr),
		subagent.New(subagent.Options{
			Client: c, Live: mgr.GetAPIReader(), Store: o.Threads.Store(), Engine: o.Engine, Recorder: recorder, Clock: o.Clock, Workers: subagentWorkers,
		}).Setup(mgr),
		scheduledeffect.New(scheduledeffect.Options{
			Client: c, Live: mgr.GetAPIReader(), Store: o.Threads.Store(), Engine: o.Engine, Recorder: recorder, Clock: o.Clock, Workers: effectWorkers,
		}).Setup(mgr),
		threadquota.New(threadquota.Options{
			Client: c, Store: o.Threads.Store(), Effects: o.Effects, Limits: o.Quotas, Recorder: recorder, Clock: o.Clock, Workers: quotaWorkers,
		}).Setup(mgr),
		sandboxpool.New(sandboxpool.Options{
			Client: c, ProcessMode: o.Pools.ProcessMode, Settings: o.Pools.Settings, Authority: o.Pools.Authority,
			ManagerNamespace: o.Pools.ManagerNamespace, Account: o.Pools.Account, Recorder: recorder, Clock: o.Clock, Workers: poolWorkers,
		}).Setup(mgr),
	)
}
