package thread

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// NamespaceUID returns the UID of the namespace that has a name now, read from the API server; "" when there is none.
type NamespaceUID func(ctx context.Context, name string) (string, error)

// ServeNamespaces says whose data goes by the name of a namespace. Without it such data belongs to every namespace that has the name.
// Call it before the service is used.
func (s *Service) ServeNamespaces(uid NamespaceUID) { s.namespaceUID = uid }

// Known returns a namespace with its UID, which is "" when nobody has the name now. Then the data of earlier namespaces of the name is
// there for those who have rights in all namespaces.
func (s *Service) Known(ctx context.Context, ns store.Namespace) (store.Namespace, error) {
	if ns.UID != "" || s.namespaceUID == nil {
		return ns, nil
	}
	uid, err := s.namespaceUID(ctx, ns.Name)
	if err != nil {
		return ns, fmt.Errorf("%w: read namespace %s: %w", store.ErrUnavailable, ns.Name, err)
	}
	ns.UID = uid
	return ns, nil
}
