package thread

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// NamespaceUID returns the UID of the namespace that has a name now, read from the API server; "" when there is none.
type NamespaceUID func(ctx context.Context, name string) (string, error)

// ServeNamespaces says whose data goes by the name of a namespace. Without it such data belongs to every namespace that has the name.
// Call it before the service is used.
func (s *Service) ServeNamespaces(uid NamespaceUID) { s.namespaceUID = uid }

// KnownNamespace returns a namespace with its UID, which is "" when there is no such namespace now. Then users with rights in all
// namespaces can read the data of earlier namespaces of the name.
func (s *Service) KnownNamespace(ctx context.Context, ns store.Namespace) (store.Namespace, error) {
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

// clusterNamespace is a namespace that every cluster has from its first moment to its last, so that its UID stands for the cluster.
const clusterNamespace = "kube-system"

// ReconcileOwners gives rows without an owner, which an earlier release wrote, to the namespace that has their name now, and removes
// rows of namespaces that are gone. It removes only what the API server has said is gone: with any error, rows stay. In another
// cluster than before, as after the cluster was made anew, no namespace is the one that it was. Then rows and threads go by their names
// once more.
func (s *Service) ReconcileOwners(ctx context.Context) (removed int64, err error) {
	if s.namespaceUID == nil {
		return 0, nil
	}
	if err := s.reconcileCluster(ctx); err != nil {
		return 0, err
	}
	owners, err := s.store.Owners(ctx)
	if err != nil {
		return 0, err
	}
	uids := map[string]string{}
	for _, ns := range owners {
		uid, known := uids[ns.Name]
		if !known {
			if uid, err = s.namespaceUID(ctx, ns.Name); err != nil {
				return removed, fmt.Errorf("read namespace %s: %w", ns.Name, err)
			}
			uids[ns.Name] = uid
		}
		switch {
		case ns.UID == uid:
		case ns.UID != "":
			n, err := inSlices(func() (int64, error) { return s.store.RemoveRows(ctx, ns) })
			if removed += n; err != nil {
				return removed, err
			}
		default:
			if _, err := inSlices(func() (int64, error) { return s.store.GiveRows(ctx, ns, uid) }); err != nil {
				return removed, err
			}
		}
	}
	return removed, nil
}

// reconcileCluster gives rows of the namespaces of another cluster to those of this one.
func (s *Service) reconcileCluster(ctx context.Context) error {
	now, err := s.namespaceUID(ctx, clusterNamespace)
	if err != nil {
		return fmt.Errorf("read namespace %s: %w", clusterNamespace, err)
	}
	if now == "" {
		return errors.New("there is no namespace " + clusterNamespace + ", so Skein cannot tell which cluster this is")
	}
	was, err := s.store.Cluster(ctx)
	if err != nil || was == now {
		return err
	}
	if was != "" {
		if err := s.leaveCluster(ctx); err != nil {
			return err
		}
	}
	return s.store.SetCluster(ctx, now)
}

// leaveCluster replaces the namespace UIDs of rows of another cluster by those that namespaces of the same names have now. If there is no namespace
// of a name, the rows get an empty UID, and the next namespace of the name gets them. Retained threads are changed only for the last
// namespace of a name in the other cluster. Those of an earlier one, which was deleted there, stay out of reach. leaveCluster
// changes the last namespace after the others, and its retained threads before its other rows, so that a call after a failed one finds
// the same last namespace.
func (s *Service) leaveCluster(ctx context.Context) error {
	all, err := s.store.FormerOwners(ctx)
	if err != nil {
		return err
	}
	uids, last := map[string]string{}, map[string]string{}
	var former []store.Namespace
	for _, ns := range all {
		if _, known := uids[ns.Name]; !known {
			if uids[ns.Name], err = s.namespaceUID(ctx, ns.Name); err != nil {
				return fmt.Errorf("read namespace %s: %w", ns.Name, err)
			}
		}
		if ns.UID != uids[ns.Name] { // others have written in this cluster already
			former = append(former, ns)
			last[ns.Name] = ns.UID
		}
	}
	for _, ns := range former {
		uid := uids[ns.Name]
		steps := []func() (int64, error){
			func() (int64, error) { return s.store.GiveThreads(ctx, ns, uid, false) },
			func() (int64, error) { return s.store.GiveRows(ctx, ns, uid) },
		}
		if last[ns.Name] == ns.UID {
			steps = slices.Insert(steps, 0, func() (int64, error) { return s.store.GiveThreads(ctx, ns, uid, true) })
		}
		for _, step := range steps {
			if _, err := inSlices(step); err != nil {
				return err
			}
		}
	}
	return nil
}

// inSlices repeats work on a bounded number of rows until none are left.
func inSlices(work func() (int64, error)) (sum int64, err error) {
	for {
		n, err := work()
		sum += n
		if err != nil || n == 0 {
			return sum, err
		}
	}
}
