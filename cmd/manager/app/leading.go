package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// errOtherLeader ends a replica on SQLite that lost the leader lease to another one.
var errOtherLeader = errors.New("another replica with its own data leads now: with SQLite there is one replica")

// leading runs what belongs to the leader alone: the controllers and periodic work. It is a Runnable of the replica's
// manager, which runs the engine and the runtime API. Losing the leader lease, for example while the API server is
// away, stops the controllers. The runs of this replica continue, and it stands for election again.
//
// Each term has a manager of its own, because the controllers of controller-runtime start only once. It shares the
// cache and the client of the replica's manager.
type leading struct {
	replica  ctrl.Manager
	cfg      *rest.Config
	election *election // nil: this replica always leads
	// alone ends the replica when another one leads.
	alone bool
	setup func(term ctrl.Manager) error
	log   logr.Logger

	controllers config.Controller

	once    sync.Once
	elected chan struct{} // closed when this replica leads for the first time

	draining *draining
}

// addLeading adds the election to the replica's manager. setup adds the controllers to the manager of a term.
func (o *Options) addLeading(cfg *rest.Config, mgr ctrl.Manager, d *draining, setup func(ctrl.Manager) error) (*leading, error) {
	elect, err := o.newElection(cfg)
	if err != nil {
		return nil, err
	}
	elect.recordEvents(mgr)
	l := &leading{
		replica: mgr, cfg: cfg, election: elect, alone: o.Store == StoreSQLite, setup: setup, log: o.Logger.WithName("leading"),
		// Each term registers controllers of the same names.
		controllers: config.Controller{SkipNameValidation: ptr.To(true), ReconciliationTimeout: time.Minute},
		elected:     make(chan struct{}),
		draining:    d,
	}
	return l, mgr.Add(l)
}

// Start implements manager.Runnable. A replica that drains leads no longer, so that another one leads at once.
func (l *leading) Start(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(l.draining.begun, stop)()
	if l.election == nil {
		return l.term(ctx)
	}
	for ctx.Err() == nil {
		if err := l.stand(ctx); err != nil {
			return err
		}
	}
	return nil
}

// NeedLeaderElection returns false, because this is the election.
func (*leading) NeedLeaderElection() bool { return false }

// stand waits until this replica is elected, and runs one term. It returns when the term has ended: with an error when
// a controller failed, or when another replica leads where there must be one alone.
func (l *leading) stand(ctx context.Context) error {
	// The elector outlives ctx until the controllers have stopped, so that the next leader does not start beside them.
	standing, quit := context.WithCancel(logr.NewContext(context.WithoutCancel(ctx), l.log))
	defer quit()
	var begun atomic.Bool
	var failed error
	ended, other := make(chan struct{}), make(chan struct{}, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l.election.lock, Name: leaderElectionID,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leads context.Context) {
				begun.Store(true)
				defer close(ended)
				defer quit()
				if ctx.Err() != nil {
					return // stand may not wait for this term any more
				}
				leads, stop := context.WithCancel(leads)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				failed = l.term(leads)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				if l.alone && l.led() && identity != "" && identity != l.election.lock.Identity() {
					select {
					case other <- struct{}{}:
					default:
					}
					quit()
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if !begun.Load() {
			quit()
		}
	})()
	elector.Run(standing)
	// A replica whose old lease still stands is the leader on record without having begun.
	if begun.Load() {
		<-ended
	}
	select {
	case <-other:
		return errOtherLeader
	default:
	}
	if elector.IsLeader() {
		l.release(ctx)
	}
	if begun.Load() && failed == nil && ctx.Err() == nil {
		l.log.Info("Lost the leader lease: the controllers have stopped, and this replica stands for election again. Its runs continue")
	}
	return failed
}

// led reports whether this replica has led.
func (l *leading) led() bool {
	select {
	case <-l.elected:
		return true
	default:
		return false
	}
}

// release gives the lease back, so that the next leader need not wait until it expires. client-go would do so before
// the controllers have stopped.
func (l *leading) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewDeadline)
	defer cancel()
	lock := l.election.lock
	record, _, err := lock.Get(ctx)
	if err == nil && record.HolderIdentity == lock.Identity() {
		now := metav1.Now()
		err = lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	}
	if err != nil {
		l.log.Error(err, "Cannot give the leader lease back: the next leader waits until it expires")
	}
}

// term runs the controllers until ctx ends.
func (l *leading) term(ctx context.Context) error {
	l.once.Do(func() { close(l.elected) })
	shared := &termCache{Cache: l.replica.GetCache()}
	defer shared.leave()
	term, err := ctrl.NewManager(l.cfg, ctrl.Options{
		Scheme: l.replica.GetScheme(),
		Logger: l.replica.GetLogger(),
		MapperProvider: func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) {
			return l.replica.GetRESTMapper(), nil
		},
		NewCache:  func(*rest.Config, cache.Options) (cache.Cache, error) { return shared, nil },
		NewClient: func(*rest.Config, client.Options) (client.Client, error) { return l.replica.GetClient(), nil },
		// The replica's manager serves metrics and probes.
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: ptr.To(shutdownTime),
		Controller:              l.controllers,
	})
	if err != nil {
		return fmt.Errorf("start the controllers: %w", err)
	}
	if err := l.setup(term); err != nil {
		return err
	}
	return term.Start(ctx)
}

// termCache is the replica's cache as the manager of a term sees it. The cache runs already, and outlives the term. What
// the term has registered in its informers goes with it.
type termCache struct {
	cache.Cache

	mu     sync.Mutex
	leaves []func()
}

// Start waits, because the replica's manager has started the cache.
func (c *termCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// GetInformer implements cache.Informers.
func (c *termCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	return &termInformer{Informer: i, of: c}, nil
}

// leave removes the handlers of the term.
func (c *termCache) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, remove := range c.leaves {
		remove()
	}
	c.leaves = nil
}

// termInformer notes which handlers a term adds.
type termInformer struct {
	cache.Informer
	of *termCache
}

// AddEventHandlerWithOptions implements cache.Informer. When the term ends, termCache.leave removes the handler.
func (i *termInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	registration, err := i.Informer.AddEventHandlerWithOptions(h, o)
	if err == nil {
		i.of.mu.Lock()
		i.of.leaves = append(i.of.leaves, func() { _ = i.RemoveEventHandler(registration) })
		i.of.mu.Unlock()
	}
	return registration, err
}
