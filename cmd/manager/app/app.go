package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/skein-dev/skein/internal/controller"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/modellimit"
	"github.com/skein-dev/skein/internal/engine/postruntasks"
	"github.com/skein-dev/skein/internal/gctune"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/eventlimit"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/mcptool"
)

// Run runs the manager until ctx ends or a part that it needs fails.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.watchClock(ctx); err != nil {
		return err
	}
	cfg, err := o.restConfig()
	if err != nil {
		return err
	}
	// Compile people's code in another process, because some sources exhaust the stack.
	elsewhere := compiler.New(compiler.Options{})
	o.compile = elsewhere.Compile
	defer func() { err = errors.Join(err, elsewhere.Close()) }()
	untrace, err := o.startTracing(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, untrace()) }()
	data, err := openData(ctx, &o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	if err := o.reachCluster(ctx, cfg); err != nil {
		return err
	}
	if err := o.findAccount(ctx, cfg); err != nil {
		return err
	}
	mgr, err := o.newManager(cfg)
	if err != nil {
		return err
	}
	if err := checkResources(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := prepareCache(ctx, mgr); err != nil {
		return err
	}
	boxes, err := o.openSandboxes(ctx, cfg, mgr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, boxes.close()) }()
	d := &draining{begun: ctx, timeout: o.DrainTimeout, log: o.Logger.WithName("drain")}
	work, err := o.assemble(ctx, cfg, mgr, data, boxes, d)
	if err != nil {
		return err
	}
	serving, stop := d.then(work)
	defer stop()
	return mgr.Start(serving)
}

// complete checks the flags and sets the options that they leave open.
func (o *Options) complete() error {
	if err := o.validate(); err != nil {
		return err
	}
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		o.Namespace = ns
	}
	made := o.Logger.GetSink() == nil
	if made {
		o.Logger = newLogger(o.LogFormat, o.LogLevel)
	}
	// Before anything is logged or stored, so that no known secret gets into either.
	o.secrets = redact.NewRegistry(nil)
	o.events = eventlimit.New(ownclock.Clock{})
	o.Logger = redact.NewLogger(o.Logger, o.secrets)
	if made {
		useLogger(o.Logger)
	}
	if o.Identity == "" {
		id, err := identity()
		if err != nil {
			return err
		}
		o.Identity = id
	}
	return nil
}

// identity returns a name for this process. No two living replicas, and no process and its successor, have the same.
func identity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this replica: %w", err)
	}
	if pod := os.Getenv("POD_NAME"); pod != "" {
		host = pod
	}
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return host + "-" + hex.EncodeToString(b), nil
}

// assemble builds the engine, the controllers and the runtime API, and adds them to the manager. It returns the engine.
func (o *Options) assemble(ctx context.Context, cfg *rest.Config, mgr ctrl.Manager, data *data, boxes *codeRunner, d *draining) (drainer, error) {
	gctune.ByHeap()
	if err := o.openMemory(metrics.Registry); err != nil {
		return nil, err
	}
	models := providers.NewFactory(ownclock.Clock{}).WithLimits(modellimit.New(data.store, ownclock.Clock{}))
	contents := objects.NewContents(mgr.GetCache(), mgr.GetAPIReader())
	contents.For(o.account)
	resolver := definitions.New(mgr.GetCache(), contents, o.compile, models)
	resolver.RegisterSecrets(o.secrets)
	if o.Sandbox == SandboxPods {
		resolver.RequirePools()
	}
	env, err := o.serveEnv(ctx, cfg, mgr, data, resolver)
	if err != nil {
		return nil, err
	}
	network, err := o.toolNetwork(ctx, cfg, mgr)
	if err != nil {
		return nil, err
	}
	resolver.JudgeAddresses(network)
	models.Through(func(namespace string) http.RoundTripper { return network.ForModels(namespace) })
	servers := mcptool.New(mcptool.Options{
		Network: network, Memory: o.memory, Log: o.Logger.WithName("mcp"),
		Watch: kube.WatchServers(o.recorder(mgr)), Redact: o.secrets.Text,
	})
	if err := mgr.Add(&closer{closes: []func(){servers.Close, network.Close}}); err != nil {
		return nil, err
	}
	data.threads.ServeNamespaces(func(ctx context.Context, name string) (string, error) {
		return objects.NamespaceUID(ctx, mgr.GetAPIReader(), name)
	})
	written := redact.NewClient(mgr.GetClient(), o.secrets)
	children := kube.NewChildren(written, mgr.GetAPIReader(), data.store)
	quota := kube.NewEffectQuota(o.ThreadEffects, o.NamespaceEffects)
	if err := quota.Watch(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	quotas, err := o.watchQuotas(ctx, mgr, data)
	if err != nil {
		return nil, err
	}
	effects := kube.NewEffects(written, mgr.GetAPIReader(), data.store, ownclock.Clock{}, quota).WithQuotas(quotas.Limits)
	eng, err := engine.New(engine.Options{
		Memory:        o.memory,
		Threads:       data.threads,
		Definitions:   resolver,
		Children:      children,
		ThreadObjects: kube.NewThreads(written, mgr.GetAPIReader()),
		Effects:       effects,
		Sandboxes:     boxes.port,
		Models:        models,
		Network:       network,
		MCP:           servers,
		Owner:         o.Identity,
		Workers:       o.Workers,

		NamespaceWorkers: o.NamespaceWorkers,
		Quotas:           quotas.Limits,
		Limits:           engine.Limits{Depth: o.SubagentDepth, Children: o.ThreadSubagents, NamespaceChildren: o.NamespaceSubagents},

		MissedFiring: scheduledeffect.ReportMissed(o.recorder(mgr)),

		Logger:  o.Logger,
		Redact:  o.secrets.Text,
		PostRun: postruntasks.Tasks(postruntasks.Options{Store: data.store, Definitions: resolver, Models: models, Redact: o.secrets.Text, Memory: o.memory}),
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(eng); err != nil {
		return nil, err
	}
	if err := measureLoad(metrics.Registry, eng); err != nil {
		return nil, err
	}
	lead, err := o.addLeading(cfg, mgr, d, func(term ctrl.Manager) error {
		for _, r := range []manager.Runnable{
			&indexer{threads: data.threads, clock: ownclock.Clock{}, log: o.Logger.WithName("indexer")},
			&sweeper{threads: data.threads, retained: o.RetainedTTL, clock: ownclock.Clock{}, log: o.Logger.WithName("sweeper")},
			&remover{threads: data.threads, clock: ownclock.Clock{}, log: o.Logger.WithName("remover")},
			&oldRowSweeper{threads: data.threads, clock: ownclock.Clock{}, log: o.Logger.WithName("sweeper")},
			&statistics{store: data.store, cache: mgr.GetCache(), clock: ownclock.Clock{}, log: o.Logger.WithName("statistics")},
			&ownerSweeper{threads: data.threads, clock: ownclock.Clock{}, log: o.Logger.WithName("sweeper")},
			&quotaSweeper{store: data.store, clock: ownclock.Clock{}, log: o.Logger.WithName("quotas")},
			&expirer{threads: data.threads, clock: ownclock.Clock{}, log: o.Logger.WithName("expiry")},
			env.resealer, env.waker,
		} {
			if err := term.Add(r); err != nil {
				return err
			}
		}
		return controller.Setup(term, controller.Options{
			Quotas: quotas.Limits, Effects: effects, GatewaysOff: !o.servesGateways(),
			Threads: data.threads, Engine: eng, Definitions: resolver, Sandboxes: boxes.port, Pools: boxes.pools, Secrets: o.secrets, Events: o.events,
		})
	})
	if err != nil {
		return nil, err
	}
	api, err := o.addRuntimeAPI(ctx, cfg, mgr, data, eng, children, effects, d)
	if err != nil {
		return nil, err
	}
	if err := o.addWebhooks(mgr, data, resolver, network); err != nil {
		return nil, err
	}
	if err := o.addGateway(mgr, data, eng, resolver, network, api, d); err != nil {
		return nil, err
	}
	if err := o.addPprof(mgr); err != nil {
		return nil, err
	}
	return eng, o.addHealth(mgr, lead, data, api, d)
}

// recorder returns a recorder of Events for what runs on each replica.
func (o *Options) recorder(mgr ctrl.Manager) events.EventRecorder {
	return o.events.Recorder(redact.NewRecorder(mgr.GetEventRecorder("skein.dev/manager"), o.secrets))
}

// data holds the store and what depends on it.
type data struct {
	store   store.Store
	secrets *redact.Registry
	threads *thread.Service
	close   func() error
}

// openData opens the store and the bucket.
func openData(ctx context.Context, o *Options) (*data, error) {
	st, err := o.reachStore(ctx)
	if err != nil {
		return nil, err
	}
	quota, err := o.fileQuota()
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	url, err := o.blobURL()
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	blobs, err := thread.OpenBucket(ctx, url)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	clean := redact.NewStore(telemetry.NewStore(st), o.secrets)
	return &data{
		store:   clean,
		secrets: o.secrets,
		threads: thread.NewService(thread.Options{Store: clean, Blobs: blobs, MaxQueued: o.MaxQueued, FileQuota: quota}),
		close:   func() error { return errors.Join(blobs.Close(), st.Close()) },
	}, nil
}
