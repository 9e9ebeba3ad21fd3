package definitions

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// OpenedHosts returns a function that lists the private hosts that a Namespace opens to the tools in it. reader is a
// cache of the metadata of Namespaces.
func OpenedHosts(reader client.Reader) func(namespace string) []outbound.Host {
	return func(namespace string) []outbound.Host {
		text, err := hostsAnnotation(context.Background(), reader, namespace)
		if err != nil {
			return nil // a Namespace that cannot be read opens nothing
		}
		hosts, _ := outbound.ParseAnnotation(text) // the condition of a Tool reports a mistake in the annotation
		return hosts
	}
}

func hostsAnnotation(ctx context.Context, reader client.Reader, namespace string) (string, error) {
	ns := objects.MetadataOf("Namespace")
	if err := reader.Get(ctx, client.ObjectKey{Name: namespace}, ns, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("read Namespace %q: %w", namespace, err)
	}
	return ns.Annotations[outbound.AnnotationPrivateHosts], nil
}

// JudgeAddresses sets the network against which the addresses of Tools, Models, Webhooks and ThreadGateways are checked:
// the one that makes their requests. Call it before the port is used.
func (d *Resolver) JudgeAddresses(n *outbound.Network) {
	d.Tools.network, d.Models.network, d.Webhooks.network, d.Gateways.network = n, n, n, n
}

// CheckAddress returns a *definition.NotReadyError when Skein may not connect to the endpoint of the Model.
func (ms *Models) CheckAddress(ctx context.Context, m *skeinv1.Model) error {
	if ms.network == nil || m.Spec.Endpoint == "" {
		return nil
	}
	return judgeAddress(ctx, ms.reader, ms.network.ForModels(m.Namespace), m.Namespace, m.Spec.Endpoint)
}

// CheckAddress returns a *definition.NotReadyError when Skein may not connect to the host of the Tool's URL.
func (ts *Tools) CheckAddress(ctx context.Context, t *skeinv1.Tool, resolved *definition.Tool) error {
	var text string
	switch {
	case ts.network == nil:
		return nil
	case resolved.HTTP != nil:
		text = resolved.HTTP.Origin()
	case resolved.MCP != nil:
		text = resolved.MCP.URL
	default:
		return nil
	}
	return judgeAddress(ctx, ts.reader, ts.network.For(t.Namespace), t.Namespace, text)
}

// CheckAddress returns a *definition.NotReadyError when Skein may not connect to the id provider of a ThreadGateway.
func (gs *Gateways) CheckAddress(ctx context.Context, g *skeinv1.ThreadGateway) error {
	if gs.network == nil || g.Spec.IDProvider == nil || g.Spec.IDProvider.HTTP == nil {
		return nil
	}
	return judgeAddress(ctx, gs.reader, gs.network.ForIDProviders(g.Namespace), g.Namespace, g.Spec.IDProvider.HTTP.URL)
}

// CheckAddress returns a *definition.NotReadyError when Skein may not connect to the server of a Webhook.
func (ws *Webhooks) CheckAddress(ctx context.Context, w *skeinv1.Webhook) error {
	if ws.network == nil {
		return nil
	}
	err := judgeAddress(ctx, ws.reader, ws.network.ForWebhooks(w.Namespace), w.Namespace, w.Spec.URL)
	var refused *definition.NotReadyError
	if errors.As(err, &refused) {
		return objects.NotReady(refused.Reason, "spec.url: %s", refused.Message)
	}
	return err
}

// judgeAddress returns a *definition.NotReadyError when the host of a URL will be refused.
func judgeAddress(ctx context.Context, reader client.Reader, scope *outbound.Scope, namespace, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return nil // the URL was validated before
	}
	err = scope.Judge(ctx, u)
	var refused *outbound.RefusedError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		return err
	case refused.Final:
		return objects.NotReady(skeinv1.ReasonAddressForbidden, "%s", refused.Message)
	}
	message := refused.Message
	if text, err := hostsAnnotation(ctx, reader, namespace); err == nil {
		if _, err := outbound.ParseAnnotation(text); err != nil {
			message += fmt.Sprintf(". The annotation of Namespace %q has a mistake: %v", namespace, err)
		}
	}
	return objects.NotReady(skeinv1.ReasonAddressNotAllowed, "%s", message)
}
