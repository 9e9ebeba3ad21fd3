package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/boundsecrets"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/ownclock"
)

// flagSecretsByBinding is the flag of an installation whose manager has no right to the Secrets of all namespaces.
const flagSecretsByBinding = "secrets-by-binding"

// findAccount sets the manager's name at the API server, for conditions that say what to bind. Only they need it, so a manager that
// may read all Secrets takes that of the installation's files.
func (o *Options) findAccount(ctx context.Context, cfg *rest.Config) error {
	o.account = objects.Account("system:serviceaccount:" + o.Namespace + ":skein-manager")
	if !o.SecretsByBinding {
		return nil
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = answerTime
	live, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return err
	}
	return reach(ctx, o.Logger, "the API server at "+cfg.Host, clusterAway, func() error {
		o.account, err = boundsecrets.WhoAmI(ctx, live)
		return err
	})
}

// newCache returns the manager's cache, which has the metadata of Secrets.
func (o *Options) newCache(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
	others, err := cache.New(cfg, opts)
	if err != nil || !o.SecretsByBinding {
		return others, err
	}
	return o.boundSecrets(cfg, opts, boundsecrets.Options{
		Others: others, Namespaces: others,
		Object: func() client.Object { return objects.MetadataOf("Secret") },
		List: func() client.ObjectList {
			l := &metav1.PartialObjectMetadataList{}
			l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
			return l
		},
	})
}

// boundSecrets adds the Secrets of single namespaces to a cache. opts are the options of that cache.
func (o *Options) boundSecrets(cfg *rest.Config, opts cache.Options, b boundsecrets.Options) (cache.Cache, error) {
	live, err := client.New(cfg, client.Options{Scheme: opts.Scheme, Mapper: opts.Mapper, HTTPClient: opts.HTTPClient})
	if err != nil {
		return nil, err
	}
	var only map[client.Object]cache.ByObject
	for object, how := range opts.ByObject {
		if _, ok := object.(*corev1.Secret); ok {
			only = map[client.Object]cache.ByObject{object: how}
		}
	}
	b.Allowed = boundsecrets.MayRead(live)
	b.Open = func(namespace string, failed toolscache.WatchErrorHandlerWithContext) (cache.Cache, error) {
		return cache.New(cfg, cache.Options{
			Scheme: opts.Scheme, Mapper: opts.Mapper, HTTPClient: opts.HTTPClient,
			ByObject: only, DefaultNamespaces: map[string]cache.Config{namespace: {}},
			DefaultTransform: opts.DefaultTransform, DefaultWatchErrorHandler: failed,
		})
	}
	b.Clock, b.Logger = ownclock.Clock{}, o.Logger.WithName("secrets")
	return boundsecrets.New(b), nil
}
