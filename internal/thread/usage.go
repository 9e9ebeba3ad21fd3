package thread

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// Usage returns the sum of what the thread's ended runs used. With subtree it includes its descendants, also purged
// ones (LOG-03).
func (st *State) Usage(ctx context.Context, subtree bool) (*store.UsageSum, error) {
	return st.svc.store.Usage(ctx, store.UsageQuery{ThreadID: st.id, Subtree: subtree})
}

// UsageRecords lists what each ended run of the thread and each post-run task used, newest first (RUN-07).
func (st *State) UsageRecords(ctx context.Context, limit, offset int) ([]store.UsageRecord, error) {
	return st.svc.store.UsageRecords(ctx, st.id, limit, offset)
}

// Usage returns the sum of what the ended runs of a namespace used, or of one of its agents. It includes threads that
// were purged since (LOG-03).
func (s *Service) Usage(ctx context.Context, namespace, agent string) (*store.UsageSum, error) {
	ns, err := s.KnownNamespace(ctx, store.Namespace{Name: namespace})
	if err != nil {
		return nil, err
	}
	return s.store.Usage(ctx, store.UsageQuery{Namespace: ns.Name, NamespaceUID: ns.UID, Agent: agent})
}
