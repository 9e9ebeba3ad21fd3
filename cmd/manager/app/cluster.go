package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/managedfields"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/ownwrites"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=skein-system,resources=leases,verbs=get;create;update;patch
// +kubebuilder:rbac:groups="",namespace=skein-system,resources=events,verbs=create;patch

// shutdownTime is how long runs and requests have to finish.
const shutdownTime = 25 * time.Second

// Scheme returns a scheme with every kind that the manager reads or writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(skeinv1.AddToScheme(s))
	return s
}

// inCluster reports whether the manager is a pod of the cluster that it serves.
func (o *Options) inCluster() bool {
	return o.Config == nil && o.Kubeconfig == "" && os.Getenv("KUBECONFIG") == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// restConfig returns the configuration for reaching the cluster.
func (o *Options) restConfig() (*rest.Config, error) {
	cfg, err := o.baseConfig()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	// The API server's own flow control is fairer than a client-side limit.
	cfg.QPS, cfg.Burst = -1, -1
	cfg.UserAgent = "skein-manager"
	cfg.Wrap(managedfields.LeaveOut)
	return cfg, nil
}

func (o *Options) baseConfig() (*rest.Config, error) {
	if o.Config != nil {
		return o.Config, nil
	}
	if o.inCluster() {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("use the pod's own account: %w", err)
		}
		return cfg, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to serve: %w; give --kubeconfig or set KUBECONFIG", err)
	}
	return cfg, nil
}

// newManager returns a controller-runtime manager whose client reads its own writes.
func (o *Options) newManager(cfg *rest.Config) (ctrl.Manager, error) {
	pool, err := labels.NewRequirement(skeinv1.LabelPool, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	byObject := map[client.Object]cache.ByObject{
		&corev1.Pod{}:                 {Label: labels.NewSelector().Add(*pool)},
		&discoveryv1.EndpointSlice{}:  apiServerSlices(),
		&corev1.Node{}:                nodeCache(),
		&networkingv1.NetworkPolicy{}: {Label: labels.SelectorFromSet(labels.Set{skeinv1.LabelManagedBy: skeinv1.ManagedByValue})},
	}
	if len(o.Namespaces) == 1 { // changes of other Namespaces do not matter here
		byObject[objects.MetadataOf("Namespace")] = cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Namespaces[0])}
	}
	logger := o.Logger
	options := ctrl.Options{
		Scheme: Scheme(),
		Logger: o.Logger.WithSink(lostEvents{o.Logger.GetSink()}), // writes Events, too
		Cache: cache.Options{
			DefaultNamespaces: o.cachedNamespaces(),
			ByObject:          byObject,
			DefaultTransform:  objects.Cached,
		},
		NewCache: o.newCache,
		Client: client.Options{Cache: &client.CacheOptions{
			EnableReadYourWritesConsistency: ptr.To(true),
			// The contents of Secrets and ConfigMaps are read on demand; only their metadata is cached
			// (objects.Contents).
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
		NewClient: func(cfg *rest.Config, o client.Options) (client.Client, error) {
			c, err := client.New(cfg, o)
			if err != nil {
				return nil, err
			}
			return ownwrites.New(c, logger.WithName("cache")), nil
		},
		Metrics:                 metricsserver.Options{BindAddress: o.MetricsBindAddress},
		HealthProbeBindAddress:  o.HealthProbeBindAddress,
		GracefulShutdownTimeout: ptr.To(shutdownTime),
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("reach the cluster at %s: %w", cfg.Host, err)
	}
	return mgr, nil
}

// cachedNamespaces returns the namespaces that the manager serves. nil means all.
func (o *Options) cachedNamespaces() map[string]cache.Config {
	if len(o.Namespaces) == 0 {
		return nil
	}
	namespaces := make(map[string]cache.Config, len(o.Namespaces))
	for _, ns := range o.Namespaces {
		namespaces[ns] = cache.Config{}
	}
	return namespaces
}

// checkResources returns an error when the custom resources are not installed, so that this is reported early and in
// plain words.
func checkResources(mapper apimeta.RESTMapper) error {
	for _, kind := range []string{"Agent", "Prompt", "Model", "Tool", "Effect", "ThreadEndpoint", "ThreadGateway", "ThreadQuota", "Webhook", "WebhookReceiver", "Thread", "Subagent", "ScheduledEffect", "SandboxPool"} {
		_, err := mapper.RESTMapping(schema.GroupKind{Group: skeinv1.GroupVersion.Group, Kind: kind}, skeinv1.GroupVersion.Version)
		if apimeta.IsNoMatchError(err) {
			return fmt.Errorf("the cluster does not know the kind %s of %s: install the custom resources first (kubectl apply --server-side -k config/crd)", kind, skeinv1.GroupVersion)
		}
		if err != nil {
			return fmt.Errorf("ask the cluster for its kinds: %w", err)
		}
	}
	return nil
}

// prepareCache adds the indexes and starts the caches that the ports read, at once and in this replica. Controllers
// run on the leader only, but every replica runs threads.
func prepareCache(ctx context.Context, mgr ctrl.Manager) error {
	if err := objects.RegisterIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	var errs []error
	for _, kind := range []string{"Secret", "ConfigMap"} {
		_, err := mgr.GetCache().GetInformer(ctx, objects.MetadataOf(kind))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
