package definitions

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/objects"
)

// reader reads definitions from a cache.
type reader struct{ client.Reader }

// get reads a definition from the cache without copying it. Callers must not change what into points to.
func (r reader) get(ctx context.Context, kind, namespace, name, field string, into client.Object) error {
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return objects.Missing(kind, namespace, name, field)
	}
	if err != nil {
		return fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	return nil
}
