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

// JudgeAddresses sets the network against which the addresses of Tools are checked: the one that makes their
// requests. Call it before the port is used.
func (d *Resolver) JudgeAddresses(n *outbound.Network) {
	d.Tools.network, d.Webhooks.network = n, n
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
	u, err := url.Parse(text)
	if err != nil {
		return nil // the URL was validated before
	}
	err = ts.network.For(t.Namespace).Judge(ctx, u)
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
	if text, err := hostsAnnotation(ctx, ts.reader, t.Namespace); err == nil {
		if _, err := outbound.ParseAnnotation(text); err != nil {
			message += fmt.Sprintf(". The annotation of Namespace %q has a mistake: %v", t.Namespace, err)
		}
	}
	return objects.NotReady(skeinv1.ReasonAddressNotAllowed, "%s", message)
}
