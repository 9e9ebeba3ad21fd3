package thread

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// Usage sums what the thread's ended runs used, with subtree those of its descendants too, purged ones
// included (LOG-03).
func (st *State) Usage(ctx context.Context, subtree bool) (*store.UsageSum, error) {
	return st.svc.store.Usage(ctx, store.UsageQuery{ThreadID: st.id, Subtree: subtree})
}

// UsageRecords lists what each ended run of the thread used, and each task that followed one, newest first (RUN-07).
func (st *State) UsageRecords(ctx context.Context, limit, offset int) ([]store.UsageRecord, error) {
	return st.svc.store.UsageRecords(ctx, st.id, limit, offset)
}

// Usage sums what the ended runs of a namespace used, or of one agent of it. What threads used that have been
// purged since is part of it (LOG-03).
func (s *Service) Usage(ctx context.Context, namespace, agent string) (*store.UsageSum, error) {
	return s.store.Usage(ctx, store.UsageQuery{Namespace: namespace, Agent: agent})
}
