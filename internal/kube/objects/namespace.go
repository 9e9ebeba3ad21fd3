package objects

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NamespaceUID returns the UID of a namespace; "" when it does not exist. live reads from the API server, because a cache may still have
// an earlier namespace of the same name.
func NamespaceUID(ctx context.Context, live client.Reader, name string) (string, error) {
	o := MetadataOf("Namespace")
	if err := live.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return string(o.UID), nil
}
