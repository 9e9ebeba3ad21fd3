package definitions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/thread"
)

// Gateways finds and resolves ThreadGateways.
type Gateways struct {
	reader   reader
	contents *objects.Contents
	secrets  thread.EnvSecrets
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

	Origins       []string
	AnswerTimeout time.Duration
	Limits        skeinv1.GatewayLimits
}

// The limits of a ThreadGateway that leaves them out; its schema has the same.
const defaultAnswerTimeout = 2 * time.Minute

// DefaultGatewayLimits returns the limits of a ThreadGateway that sets none.
func DefaultGatewayLimits() skeinv1.GatewayLimits {
	return skeinv1.GatewayLimits{MessageBytes: 64 << 10, PerThread: 60, PerAddress: 120, Total: 6000, NewThreads: 60, Open: 500}
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
	}
	if d := g.Spec.AnswerTimeout; d != nil {
		out.AnswerTimeout = d.Duration
	}
	if l := g.Spec.Limits; l != nil {
		d := out.Limits
		out.Limits = skeinv1.GatewayLimits{
			MessageBytes: cmp.Or(l.MessageBytes, d.MessageBytes), PerThread: cmp.Or(l.PerThread, d.PerThread), PerAddress: cmp.Or(l.PerAddress, d.PerAddress),
			Total: cmp.Or(l.Total, d.Total), NewThreads: cmp.Or(l.NewThreads, d.NewThreads), Open: cmp.Or(l.Open, d.Open),
		}
	}
	keys := make([][]byte, 0, len(g.Spec.SigningKeys))
	for i := range g.Spec.SigningKeys {
		key, err := gs.key(ctx, g, g.Spec.SigningKeys[i], fmt.Sprintf("spec.signingKeys[%d]", i))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	var err error
	if out.IDs.Keys, err = ids.NewKeyring(keys...); err != nil {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.signingKeys: %v", err)
	}
	if u := g.Spec.User; u != nil {
		out.UserHeader = u.Header
		if out.UserKey, err = gs.key(ctx, g, u.HashKey, "spec.user.hashKey"); err != nil {
			return nil, err
		}
	}
	return out, nil
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
