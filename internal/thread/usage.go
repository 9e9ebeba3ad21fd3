package thread

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// Usage sums what the thread's ended runs used, with subtree those of its descendants too, purged ones
// included (SPEC LOG-03).
func (st *State) Usage(ctx context.Context, subtree bool) (*store.UsageSum, error) {
	return st.svc.store.Usage(ctx, store.UsageQuery{ThreadID: st.id, Subtree: subtree})
}

// Usage sums what the ended runs of a namespace used, or of one agent of it. What threads used that have been
// purged since is part of it (SPEC LOG-03).
func (s *Service) Usage(ctx context.Context, namespace, agent string) (*store.UsageSum, error) {
	return s.store.Usage(ctx, store.UsageQuery{Namespace: namespace, Agent: agent})
}
