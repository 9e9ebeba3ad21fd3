// Package auth makes the API server of the cluster authenticate and authorize requests of the runtime API.
package auth

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	authunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

const (
	// The ConfigMap in which an API server publishes whom its aggregated servers may trust.
	authConfigNamespace = "kube-system"
	authConfigName      = "extension-apiserver-authentication"

	// answerTTL is how long an answer of the API server about a token or a right is cached.
	answerTTL = 10 * time.Second
	// reviewTimeout bounds one such request.
	reviewTimeout = 10 * time.Second
)

// Delegate makes the API server that kubeconfig reaches authenticate and authorize requests. The genericoptions of
// k8s.io/apiserver do the same but read kubeconfig files, and the credentials in a manager's configuration must not be
// written to disk.
func Delegate(cfg *genericapiserver.Config, kubeconfig *rest.Config) error {
	kube := rest.CopyConfig(kubeconfig)
	kube.QPS, kube.Burst = 200, 400 // each new token and right costs a request
	clients, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return err
	}
	if err := delegateAuthentication(cfg, clients); err != nil {
		return err
	}
	kube.Timeout = reviewTimeout
	if clients, err = kubernetes.NewForConfig(kube); err != nil {
		return err
	}
	cfg.Authorization.Authorizer, err = delegateAuthorization(clients)
	return err
}

// delegateAuthentication trusts the headers of the front proxy, client certificates of the cluster, and what
// TokenReview says about bearer tokens.
func delegateAuthentication(cfg *genericapiserver.Config, clients kubernetes.Interface) error {
	clientCA, err := newAuthorityOf(context.Background(), clients, "client-ca", "client-ca-file")
	if err != nil {
		return err
	}
	proxy, err := newFrontProxy(context.Background(), clients)
	if err != nil {
		return err
	}
	headers := &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   proxy,
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(proxy.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(proxy.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(proxy.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(proxy.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(proxy.AllowedClientNames),
	}
	cfg.Authentication.RequestHeaderConfig = headers
	for _, ca := range []dynamiccertificates.CAContentProvider{clientCA, proxy} {
		if err := cfg.Authentication.ApplyClientCert(ca, cfg.SecureServing); err != nil {
			return err
		}
	}
	inner, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:            clients.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                genericoptions.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                           answerTTL,
		ClientCertificateCAContentProvider: clientCA,
	}.New()
	if err != nil {
		return err
	}
	fromProxy := group.NewAuthenticatedGroupAdder(newProxyAuthenticator(headers, clock.RealClock{}))
	known := authunion.New(fromProxy, inner)
	everyone := anonymous.NewAuthenticator(nil) // for health checks; it has no rights
	cfg.Authentication.Authenticator = limitReviews(authunion.NewFailOnError(known, everyone))
	return nil
}

func delegateAuthorization(clients kubernetes.Interface) (authorizer.Authorizer, error) {
	health, err := path.NewAuthorizer([]string{"/healthz", "/readyz", "/livez"})
	if err != nil {
		return nil, err
	}
	reviews, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: clients.AuthorizationV1(),
		AllowCacheTTL:             answerTTL,
		DenyCacheTTL:              answerTTL,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, err
	}
	free, err := union.New(
		union.NamedAuthorizer{AuthorizerName: "privileged-groups", Authorizer: authorizerfactory.NewPrivilegedGroups("system:masters")},
		union.NamedAuthorizer{AuthorizerName: "health", Authorizer: health},
	)
	if err != nil {
		return nil, err
	}
	return &limitedAuthorizer{
		Authorizer: reviews, free: free,
		semaphores: flow.NewSemaphores(rightsAtOnce, maxWaiting, "requests of the user %q wait until the API server has reviewed their rights"),
	}, nil
}
