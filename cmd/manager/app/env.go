package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/boundsecrets"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/thread"
)

const (
	// resealEvery is the interval of the search for values under old keys.
	resealEvery = time.Minute
	// keyGrace is how long a replica may still use the old keys after a change. Each replica reads the keys once in
	// half that time.
	keyGrace = 2 * kube.EnvKeyReload
)

var unsealed = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "skein_env_old_key_values",
	Help: "Variables of threads that are sealed under another key than the primary one.",
})

func init() { metrics.Registry.MustRegister(unsealed) }

// envWork is what the leader does about variables.
type envWork struct {
	resealer *resealer
	waker    *envWaker
}

// serveEnv provides what variables of threads need, and keeps it up to date.
func (o *Options) serveEnv(ctx context.Context, cfg *rest.Config, mgr ctrl.Manager, data *data, resolver *definitions.Resolver) (*envWork, error) {
	labelled, err := o.newLabelledCache(ctx, cfg, mgr)
	if err != nil {
		return nil, err
	}
	live, err := client.New(cfg, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return nil, err
	}
	log := o.Logger.WithName("env")
	ring := &envkeys.Keyring{}
	keys := &kube.EnvKeys{
		Client: live, Namespace: o.Namespace, Secret: o.EnvKeySecret, Ring: ring, MakeNamespace: !o.inCluster(), Clock: ownclock.Clock{}, Logger: log,
		InUse: func(ctx context.Context) (bool, error) {
			used, err := data.threads.Store().EnvKeys(ctx)
			return len(used) > 0, err
		},
	}
	keys.Load(ctx)
	data.threads.ServeEnv(thread.EnvOptions{Cipher: ring, Refresh: keys.Refresh, Layers: definitions.NewEnv(resolver.Variables, labelled), Secrets: data.secrets})
	return &envWork{
		resealer: &resealer{threads: data.threads, primary: ring.Primary, secret: keys, clock: ownclock.Clock{}, log: log},
		waker:    &envWaker{threads: data.threads, cache: labelled, bound: o.SecretsByBinding, clock: ownclock.Clock{}, log: log},
	}, mgr.Add(keys)
}

// labelledCache is the cache of the Secrets and ConfigMaps that hold variables of users and instances. It is separate
// from the manager's cache, which holds all objects of these kinds, but only their metadata.
type labelledCache struct{ cache.Cache }

// GetCache makes the manager start it with its own caches.
func (c *labelledCache) GetCache() cache.Cache { return c.Cache }

// newLabelledCache returns a cache of the Secrets and ConfigMaps that hold variables of users and instances, and adds it to mgr, which
// starts it.
func (o *Options) newLabelledCache(ctx context.Context, cfg *rest.Config, mgr ctrl.Manager) (cache.Cache, error) {
	scoped, err := labels.NewRequirement(skeinv1.LabelEnvScope, selection.In, []string{skeinv1.EnvScopeUser, skeinv1.EnvScopeInstance})
	if err != nil {
		return nil, err
	}
	only := cache.ByObject{Label: labels.NewSelector().Add(*scoped)}
	options := cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: only, &corev1.ConfigMap{}: only},
		DefaultNamespaces: o.cachedNamespaces(),
		DefaultTransform:  objects.Cached,
	}
	c, err := cache.New(cfg, options)
	if err == nil && o.SecretsByBinding {
		c, err = o.boundSecrets(cfg, options, boundsecrets.Options{
			Others: c, Namespaces: mgr.GetCache(),
			Object: func() client.Object { return &corev1.Secret{} }, List: func() client.ObjectList { return &corev1.SecretList{} },
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cache the variables of users and instances: %w", err)
	}
	for _, obj := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
		if _, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	return c, mgr.Add(&labelledCache{c})
}

// resealer seals values with the primary key after that has changed.
type resealer struct {
	threads interface {
		ResealEnv(ctx context.Context) (done, left int, err error)
	}
	primary func() (uint32, error)
	secret  interface {
		Version() string
		NoneRemains(ctx context.Context, version string, keyID uint32) (newVersion string, err error)
	}
	clock clock.WithTicker
	log   logr.Logger
}

// Start looks for values under old keys until ctx ends. For each primary key it writes into the Secret, and logs once, that none remains,
// after a search that began when no replica could use the previous key any more. The older keys may be removed then.
func (r *resealer) Start(ctx context.Context) error {
	ticker := r.clock.NewTicker(resealEvery)
	defer ticker.Stop()
	lastError, announced, noted := "", false, ""
	var key uint32
	var since time.Time // since when the key has been known to be primary
	for {
		began, version := r.clock.Now(), r.secret.Version()
		if now, err := r.primary(); err == nil && (since.IsZero() || now != key) {
			key, since, announced = now, began, false
		}
		done, left, err := r.threads.ResealEnv(ctx)
		unsealed.Set(float64(left))
		text := ""
		if err != nil {
			text = err.Error()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && left == 0:
			if done > 0 {
				r.log.Info("put variables under the primary key", "count", done, "keyID", key)
			}
			now, err := r.primary()
			if err != nil || now != key || since.IsZero() || began.Sub(since) < keyGrace {
				break
			}
			if version != noted {
				newVersion, err := r.secret.NoneRemains(ctx, version, key)
				if err != nil { // a conflict is usual: another key may have come meanwhile
					text = fmt.Sprintf("write into the Secret that no variable remains under other keys: %s", err)
					if text != lastError && !apierrors.IsConflict(err) {
						r.log.Error(err, "cannot write into the Secret that no variable remains under other keys", "keyID", key)
					}
					break
				}
				noted = newVersion
			}
			if !announced {
				r.log.Info("all variables are under the primary key; none remains under another", "keyID", key)
				announced = true
			}
		case text != "" && text != lastError:
			r.log.Error(err, "variables remain under other keys", "done", done, "left", left)
		}
		lastError = text
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// NeedLeaderElection returns true: one replica is enough.
func (*resealer) NeedLeaderElection() bool { return true }

// envWaker wakes threads that wait for variables when the variables of a user or an instance change.
type envWaker struct {
	threads *thread.Service
	cache   cache.Cache
	bound   bool // the cache has the Secrets of the namespaces in which something has asked for them
	clock   clock.WithTicker
	log     logr.Logger
}

// openPause is the pause between two looks for namespaces in which threads wait, where Secrets are read by namespace.
const openPause = 15 * time.Second

// secondLook is how long after a change the threads are woken once more. A run of another replica, whose cache lags, may have begun to wait after
// the change was seen here.
const secondLook = 5 * time.Second

// Start watches until ctx ends. It first wakes all waiting threads, because earlier changes were not seen.
func (w *envWaker) Start(ctx context.Context) error {
	changed := make(chan string, 1000)
	note := func(obj any) {
		if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		if o, ok := obj.(client.Object); ok {
			select {
			case changed <- o.GetNamespace():
			case <-ctx.Done():
			}
		}
	}
	for _, obj := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
		informer, err := w.cache.GetInformer(ctx, obj)
		if err != nil {
			return err
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) },
		})
		if err != nil {
			return err
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	again := map[string]bool{} // namespaces
	var due <-chan time.Time
	wake := func(namespace string, twice bool) {
		if !w.wake(ctx, namespace) || twice {
			again[namespace] = true
			if due == nil {
				due = w.clock.After(secondLook)
			}
		}
	}
	wake("", false)
	var look <-chan time.Time
	if w.bound {
		ticker := w.clock.NewTicker(openPause)
		defer ticker.Stop()
		look = ticker.C()
		w.open(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case namespace := <-changed:
			wake(namespace, true)
		case <-due:
			namespaces := slices.Collect(maps.Keys(again))
			due = nil
			clear(again)
			for _, namespace := range namespaces {
				wake(namespace, false)
			}
		case <-look:
			w.open(ctx)
		}
	}
}

// wake wakes the threads of a namespace that wait for variables, or those of all namespaces. It reports whether it woke all.
func (w *envWaker) wake(ctx context.Context, namespace string) bool {
	err := w.threads.WakeEnvWaiters(ctx, namespace)
	if err != nil && ctx.Err() == nil {
		w.log.Error(err, "cannot wake all threads that wait for variables; the next try is in "+secondLook.String(), "namespace", namespace)
	}
	return err == nil
}

// open asks for the Secrets of the namespaces in which threads wait. The threads may run on other replicas, so that nothing else asks for
// them here; once the cache has a namespace, it tells of each change. A binding that is made later is seen by the cache.
func (w *envWaker) open(ctx context.Context) {
	namespaces, err := w.threads.EnvWaiterNamespaces(ctx)
	for _, name := range namespaces {
		if e := w.cache.List(ctx, &corev1.SecretList{}, client.InNamespace(name), client.UnsafeDisableDeepCopy); e != nil && !apierrors.IsForbidden(e) {
			err = errors.Join(err, fmt.Errorf("namespace %q: %w", name, e))
		}
	}
	if err != nil && ctx.Err() == nil {
		w.log.Error(err, "cannot look for the variables that threads wait for")
	}
}

// NeedLeaderElection returns true: one replica is enough.
func (*envWaker) NeedLeaderElection() bool { return true }
