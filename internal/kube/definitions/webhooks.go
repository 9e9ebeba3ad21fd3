package definitions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/internal/webhook"
)

// Webhooks finds and resolves Webhooks and WebhookReceivers.
type Webhooks struct {
	reader   reader
	contents *objects.Contents
	secrets  thread.EnvSecrets
	network  *outbound.Network
}

var _ webhook.Targets = (*Webhooks)(nil)

// defaultAttempts and the defaults below equal those of the schema. They serve objects that were stored before the schema had defaults.
const (
	defaultAttempts  = 8
	defaultBytes     = 250_000
	defaultPerMinute = 600
)

// Find implements webhook.Targets.
func (ws *Webhooks) Find(ctx context.Context, namespace, name, uid string) (*webhook.Target, error) {
	var w skeinv1.Webhook
	if err := ws.reader.get(ctx, "Webhook", namespace, name, "the delivery", &w); err != nil {
		return nil, err
	}
	if string(w.UID) != uid {
		return nil, objects.Missing("Webhook", namespace, name, "the delivery") // another one of that name
	}
	return ws.Resolve(ctx, &w)
}

// Resolve reads the keys of a Webhook and checks the name of its host. CheckAddress also looks at the host's addresses.
func (ws *Webhooks) Resolve(ctx context.Context, w *skeinv1.Webhook) (*webhook.Target, error) {
	u, err := url.Parse(w.Spec.URL)
	if err != nil {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.url: write an address such as https://ci.example.com/skein")
	}
	if ws.network != nil {
		if err := ws.network.ForWebhooks(w.Namespace).Check(u); err != nil {
			return nil, objects.NotReady(skeinv1.ReasonAddressNotAllowed, "spec.url: %v", err)
		}
	}
	keys, err := ws.keys(ctx, "webhook", w.Namespace, w.Name, w.Spec.SigningKeys)
	if err != nil {
		return nil, err
	}
	return &webhook.Target{URL: u, Keys: keys, MaxAttempts: int(cmp.Or(w.Spec.MaxAttempts, defaultAttempts))}, nil
}

// All returns the Webhooks of all namespaces, with the events that they subscribe to.
func (ws *Webhooks) All(ctx context.Context) ([]store.Webhook, error) {
	var list skeinv1.WebhookList
	if err := ws.reader.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Webhooks: %w", err)
	}
	var all []store.Webhook
	for i := range list.Items {
		w := &list.Items[i]
		if !w.DeletionTimestamp.IsZero() {
			continue
		}
		s := store.Webhook{ID: string(w.UID), Namespace: w.Namespace, Name: w.Name}
		for _, e := range w.Spec.Events {
			s.Events = append(s.Events, string(e))
		}
		for _, a := range w.Spec.AgentRefs {
			s.Agents = append(s.Agents, a.Name)
		}
		slices.Sort(s.Events)
		slices.Sort(s.Agents)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b store.Webhook) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// Receiver is a WebhookReceiver with what it refers to.
type Receiver struct {
	Namespace, Name, UID string
	Form                 skeinv1.WebhookForm
	Keys                 [][]byte
	Thread, Agent        string // one of them is empty
	MaxBytes, PerMinute  int
}

// Receiver returns the WebhookReceiver with this name, or why it cannot be used.
func (ws *Webhooks) Receiver(ctx context.Context, namespace, name string) (*Receiver, error) {
	var w skeinv1.WebhookReceiver
	if err := ws.reader.get(ctx, "WebhookReceiver", namespace, name, "the path of the request", &w); err != nil {
		return nil, err
	}
	return ws.ResolveReceiver(ctx, &w)
}

// ResolveReceiver reads the keys of a WebhookReceiver and fills in its defaults.
func (ws *Webhooks) ResolveReceiver(ctx context.Context, w *skeinv1.WebhookReceiver) (*Receiver, error) {
	out := &Receiver{
		Namespace: w.Namespace, Name: w.Name, UID: string(w.UID), Form: w.Spec.Form,
		MaxBytes: int(cmp.Or(w.Spec.MaxBytes, defaultBytes)), PerMinute: int(cmp.Or(w.Spec.PerMinute, defaultPerMinute)),
	}
	if w.Spec.ThreadRef != nil {
		out.Thread = w.Spec.ThreadRef.Name
	}
	if w.Spec.AgentRef != nil {
		out.Agent = w.Spec.AgentRef.Name
	}
	var err error
	out.Keys, err = ws.keys(ctx, "webhookreceiver", w.Namespace, w.Name, w.Spec.SigningKeys)
	return out, err
}

// keys returns keys of Secrets, which no answer and no log shows.
func (ws *Webhooks) keys(ctx context.Context, kind, namespace, name string, refs []corev1.SecretKeySelector) ([][]byte, error) {
	keys := make([][]byte, 0, len(refs))
	for i := range refs {
		field := fmt.Sprintf("spec.signingKeys[%d]", i)
		value, _, err := ws.contents.SecretKey(ctx, namespace, refs[i], field)
		if err != nil {
			return nil, err
		}
		value = bytes.TrimSpace(value) // a file from which a Secret was created usually ends in a newline
		key, err := webhook.Key(string(value))
		if err != nil {
			return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "%s: key %q of Secret %q: %v", field, refs[i].Key, refs[i].Name, err)
		}
		if ws.secrets != nil {
			ws.secrets.Register(namespace, kind+"/"+name+"/"+field, string(value))
		}
		keys = append(keys, key)
	}
	return keys, nil
}
