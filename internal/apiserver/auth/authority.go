package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// authority follows certificates that the API server publishes.
//
// The controller of k8s.io/apiserver knows no certificates until its informer has synced, some time after requests
// are answered. Until then the requests of the API server itself would be anonymous. They would stay anonymous as
// long as the connection lasts, because the client was not asked for a certificate. The API server takes an
// aggregated server that refuses its requests for one that is down. So authority starts with the certificates that
// are published when it is made.
type authority struct {
	*dynamiccertificates.ConfigMapCAController
	first dynamiccertificates.CAContentProvider // nil when none was published
}

// newAuthorityOf returns an authority for one key of the ConfigMap. It reads the key once, so that there are certificates before
// the controller has synced.
func newAuthorityOf(ctx context.Context, clients kubernetes.Interface, purpose, key string) (*authority, error) {
	follow, err := dynamiccertificates.NewDynamicCAFromConfigMapController(purpose, authConfigNamespace, authConfigName, key, clients)
	if err != nil {
		return nil, err
	}
	published, err := clients.CoreV1().ConfigMaps(authConfigNamespace).Get(ctx, authConfigName, metav1.GetOptions{})
	if client.IgnoreNotFound(err) != nil {
		return nil, unreadable(err)
	}
	a := &authority{ConfigMapCAController: follow}
	if err == nil && published.Data[key] != "" {
		if a.first, err = dynamiccertificates.NewStaticCAContent(follow.Name(), []byte(published.Data[key])); err != nil {
			return nil, fmt.Errorf("key %q of ConfigMap %s/%s, which the API server publishes, is not a bundle of certificates: %w", key, authConfigNamespace, authConfigName, err)
		}
	}
	return a, nil
}

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (a *authority) CurrentCABundleContent() []byte {
	if now := a.ConfigMapCAController.CurrentCABundleContent(); len(now) > 0 || a.first == nil {
		return now
	}
	return a.first.CurrentCABundleContent()
}

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (a *authority) VerifyOptions() (x509.VerifyOptions, bool) {
	if now, ok := a.ConfigMapCAController.VerifyOptions(); ok || a.first == nil {
		return now, ok
	}
	return a.first.VerifyOptions()
}

// frontProxy follows what the ConfigMap says about the front proxy: its authority and its headers.
type frontProxy struct {
	*authority
	*headerrequest.RequestHeaderAuthRequestController
}

func newFrontProxy(ctx context.Context, clients kubernetes.Interface) (*frontProxy, error) {
	ca, err := newAuthorityOf(ctx, clients, "front-proxy-ca", "requestheader-client-ca-file")
	if err != nil {
		return nil, err
	}
	p := &frontProxy{ca, headerrequest.NewRequestHeaderAuthRequestController(authConfigName, authConfigNamespace, clients,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")}
	if err := p.RunOnce(ctx); err != nil {
		return nil, unreadable(err)
	}
	return p, nil
}

// RunOnce implements dynamiccertificates.ControllerRunner.
func (p *frontProxy) RunOnce(ctx context.Context) error {
	return errors.Join(p.authority.RunOnce(ctx), p.RequestHeaderAuthRequestController.RunOnce(ctx))
}

// Run implements dynamiccertificates.ControllerRunner.
func (p *frontProxy) Run(ctx context.Context, workers int) {
	go p.authority.Run(ctx, workers)
	go p.RequestHeaderAuthRequestController.Run(ctx, workers)
	<-ctx.Done()
}

func unreadable(err error) error {
	return fmt.Errorf("read ConfigMap %s/%s: %w; the manager needs the Role extension-apiserver-authentication-reader there, and the API server its --requestheader flags",
		authConfigNamespace, authConfigName, err)
}
