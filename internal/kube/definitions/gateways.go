package definitions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Gateways finds and resolves ThreadGateways.
type Gateways struct {
	reader   reader
	contents *objects.Contents
	code     *Code
	pools    *Pools
	secrets  thread.EnvSecrets
	network  *outbound.Network // that id providers are asked through; nil: addresses are not checked
}

// Gateway is a ThreadGateway with what it refers to.
type Gateway struct {
	Namespace, Name, Agent string
	// IDs finds the conversation of a request that names no user.
	IDs ids.Source
	// UserHeader names the user and UserKey makes the user's id. UserHeader is empty where browsers have conversations of
	// their own.
	UserHeader string
	UserKey    []byte
	// Provider decides which conversation a request means. It is nil if IDs or the user decide that.
	Provider *IDProvider
	// APIKeys are the keys of which each request must have one. Without keys, requests need none.
	APIKeys [][]byte
	// Endpoints are the names of the ThreadEndpoints that people may use.
	Endpoints []string
	// Created is when the gateway was declared.
	Created time.Time

	Origins       []string
	AnswerTimeout time.Duration
	Limits        skeinv1.GatewayLimits
}

// IDProvider is a service, or code, that knows which conversation a request means.
type IDProvider struct {
	URL     *url.URL
	Headers []string
	Token   []byte // nil: none
	Timeout time.Duration
	// Code answers, and no service, unless it is nil.
	Code *definition.IDCode
}

// The limits of a ThreadGateway that leaves them out; its schema has the same.
const (
	defaultAnswerTimeout = 2 * time.Minute
	defaultIDTimeout     = 5 * time.Second
)

// DefaultGatewayLimits returns the limits of a ThreadGateway that sets none.
func DefaultGatewayLimits() skeinv1.GatewayLimits {
	return skeinv1.GatewayLimits{MessageBytes: 64 << 10, ChatBytes: 1 << 20, PerThread: 60, PerAddress: 120, Total: 6000, NewThreads: 60, Open: 500}
}

// Find returns the ThreadGateway of that name. It returns a *definition.NotReadyError when there is none, or when it
// cannot be used.
func (gs *Gateways) Find(ctx context.Context, namespace, name string) (*Gateway, error) {
	var g skeinv1.ThreadGateway
	if err := gs.reader.get(ctx, "ThreadGateway", namespace, name, "the path of the request", &g); err != nil {
		return nil, err
	}
	return gs.Resolve(ctx, &g)
}

// Resolve reads the keys of a ThreadGateway and fills in its defaults.
func (gs *Gateways) Resolve(ctx context.Context, g *skeinv1.ThreadGateway) (*Gateway, error) {
	out := &Gateway{
		Namespace: g.Namespace, Name: g.Name, Agent: g.Spec.AgentRef.Name,
		IDs:     ids.Source{Cookie: g.Spec.CookieName, Strict: g.Spec.Strict},
		Origins: g.Spec.AllowedOrigins, AnswerTimeout: defaultAnswerTimeout, Limits: DefaultGatewayLimits(),
		Created: g.CreationTimestamp.Time,
	}
	for _, ref := range g.Spec.EndpointRefs {
		out.Endpoints = append(out.Endpoints, ref.Name)
	}
	if d := g.Spec.AnswerTimeout; d != nil {
		out.AnswerTimeout = d.Duration
	}
	if l := g.Spec.Limits; l != nil {
		d := out.Limits
		out.Limits = skeinv1.GatewayLimits{
			MessageBytes: cmp.Or(l.MessageBytes, d.MessageBytes), ChatBytes: cmp.Or(l.ChatBytes, d.ChatBytes),
			PerThread: cmp.Or(l.PerThread, d.PerThread), PerAddress: cmp.Or(l.PerAddress, d.PerAddress),
			Total: cmp.Or(l.Total, d.Total), NewThreads: cmp.Or(l.NewThreads, d.NewThreads), Open: cmp.Or(l.Open, d.Open),
		}
	}
	keys, err := gs.keys(ctx, g, g.Spec.SigningKeys, "spec.signingKeys")
	if err != nil {
		return nil, err
	}
	if out.APIKeys, err = gs.keys(ctx, g, g.Spec.APIKeys, "spec.apiKeys"); err != nil {
		return nil, err
	}
	if out.IDs.Keys, err = ids.NewKeyring(keys...); err != nil {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.signingKeys: %v", err)
	}
	if u := g.Spec.User; u != nil {
		out.UserHeader = u.Header
		if out.UserKey, err = gs.key(ctx, g, u.HashKey, "spec.user.hashKey"); err != nil {
			return nil, err
		}
	}
	if p := g.Spec.IDProvider; p != nil {
		if out.Provider, err = gs.provider(ctx, g, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// provider resolves who makes ids.
func (gs *Gateways) provider(ctx context.Context, g *skeinv1.ThreadGateway, p *skeinv1.GatewayIDProvider) (*IDProvider, error) {
	switch {
	case p.Code != nil:
		return gs.idCode(ctx, g, p.Code)
	case p.HTTP != nil:
		return gs.idService(ctx, g, p.HTTP)
	}
	return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.idProvider: write http or code")
}

// idService resolves a service that makes ids. Whether its address may be reached is seen when it is asked.
func (gs *Gateways) idService(ctx context.Context, g *skeinv1.ThreadGateway, spec *skeinv1.GatewayHTTPIDs) (*IDProvider, error) {
	at, err := url.Parse(spec.URL)
	if err != nil || at.Host == "" {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.idProvider.http.url: write an address such as https://ids.example.com/thread")
	}
	out := &IDProvider{URL: at, Headers: spec.Headers, Timeout: idTimeout(spec.Timeout)}
	if spec.Token != nil {
		out.Token, err = gs.key(ctx, g, *spec.Token, "spec.idProvider.http.token")
	}
	return out, err
}

// idCode compiles code that makes ids.
func (gs *Gateways) idCode(ctx context.Context, g *skeinv1.ThreadGateway, spec *skeinv1.GatewayCodeIDs) (*IDProvider, error) {
	owner := codeOwner{"ThreadGateway", g.Namespace, g.Name, string(g.UID), g.Generation, "spec.idProvider.code.source"}
	c, err := gs.code.compile(ctx, owner, spec.Source, inspect.ThreadIDs)
	if err != nil {
		return nil, err
	}
	out := &IDProvider{Headers: spec.Headers, Timeout: idTimeout(spec.Timeout)}
	out.Code = &definition.IDCode{Namespace: g.Namespace, Gateway: g.Name, UID: string(g.UID), Pool: skeinv1.DefaultPoolName, Module: c.module, Timeout: out.Timeout}
	if spec.SandboxPoolRef != nil {
		out.Code.Pool = spec.SandboxPoolRef.Name
	}
	return out, gs.pools.checkNamed(ctx, g.Namespace, out.Code.Pool, "spec.idProvider.code.sandboxPoolRef")
}

func idTimeout(set *metav1.Duration) time.Duration {
	if set == nil {
		return defaultIDTimeout
	}
	return set.Duration
}

// keys returns the values of keys of Secrets.
func (gs *Gateways) keys(ctx context.Context, g *skeinv1.ThreadGateway, refs []corev1.SecretKeySelector, field string) (keys [][]byte, err error) {
	for i := range refs {
		key, err := gs.key(ctx, g, refs[i], fmt.Sprintf("%s[%d]", field, i))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// key returns a key of a Secret, which no answer and no log shows.
func (gs *Gateways) key(ctx context.Context, g *skeinv1.ThreadGateway, sel corev1.SecretKeySelector, field string) ([]byte, error) {
	value, _, err := gs.contents.SecretKey(ctx, g.Namespace, sel, field)
	if err != nil {
		return nil, err
	}
	value = bytes.TrimSpace(value) // a file from which a Secret was created usually ends in a newline
	if len(value) < ids.MinKeyLength {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "%s: key %q of Secret %q has %d bytes: use %d or more, for example from openssl rand -base64 32",
			field, sel.Key, sel.Name, len(value), ids.MinKeyLength)
	}
	if gs.secrets != nil {
		gs.secrets.Register(g.Namespace, "threadgateway/"+g.Name+"/"+field, string(value))
	}
	return value, nil
}
